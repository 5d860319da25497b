"""Two example visits, their reports, and the pictures of docs/report.md.

    python studies/example_report.py OUT [DOCS]

A simulated worker comes twice. First both ears are examined in full; two years later both are
screened against that, and the right ear has lost hearing at high frequencies. The visits go through
the store like any other, and the reports are written into OUT as HTML and PDF. With DOCS the PDFs
are drawn as PNG there, by pdftoppm (Debian's package poppler-utils). Seeds and dates are fixed;
only the fingerprint of the trials, which counts the moment of each answer, is another every time.
"""

import subprocess
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from PIL import Image

from earshift.clinic.plan import open_exam, plan_exam, plan_screen
from earshift.clinic.session import Session
from earshift.engine.tone import Tone
from earshift.records import VisitBundle
from earshift.report import write_html, write_pdf
from earshift.simulate.listener import Listener
from earshift.store import Store

AUTHOR, ZONE = "M. Halim", "Europe/Berlin"
HZ = (500.0, 1000.0, 2000.0, 3000.0, 4000.0, 6000.0, 8000.0)
RIGHT = dict(zip(HZ, (10.0, 10.0, 15.0, 20.0, 25.0, 30.0, 25.0), strict=True))
LEFT = dict(zip(HZ, (20.0, 25.0, 35.0, 45.0, 55.0, 95.0, 115.0), strict=True))
LATER = {f: level + (0.0 if f < 1500 else 25.0) for f, level in RIGHT.items()}
FIRST_VISIT = datetime(2024, 3, 5, 8, 30, tzinfo=UTC)
SECOND_VISIT = datetime(2026, 3, 10, 8, 45, tzinfo=UTC)


def main(out: Path, docs: Path | None) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        Store.open(Path(folder) / "example.db") as store,
    ):
        person = store.add_person(
            author=AUTHOR, code="W-0815", name="Example Person", birth_date=date(1979, 11, 2)
        )
        first = hold_visit(store, person.id, FIRST_VISIT, {"right": RIGHT, "left": LEFT}, "exam")
        second = hold_visit(
            store, person.id, SECOND_VISIT, {"right": LATER, "left": LEFT}, "screen"
        )
    for name, bundle in (("exam", first), ("screen", second)):
        write_html(bundle, out / f"report-{name}.html")
        write_pdf(bundle, out / f"report-{name}.pdf")
        print(f"{out / f'report-{name}'}.html and .pdf")
        if docs is not None:
            draw_page(out / f"report-{name}.pdf", docs / f"report-{name}.png")


def hold_visit(
    store: Store, person_id: int, at: datetime, ears: dict[str, dict[float, float]], kind: str
) -> VisitBundle:
    """A visit with an exam or a screen of each ear, answered by a simulated listener."""
    visit = store.open_visit(
        person_id,
        author=AUTHOR,
        zone=ZONE,
        mode="simulated",
        checklist={"otoscopy": "normal", "hours_since_noise": 16},
        started_at=at,
    )
    for ear, thresholds in ears.items():
        listener = Listener(thresholds, seed=7, guess=0.01, lapse=0.01)
        if kind == "exam":
            plan = plan_exam(ear, seed=1)
        else:
            plan = plan_screen(store, person_id, ear, simulated=True, seed=1)
        record = open_exam(store, visit, plan, author=AUTHOR)
        session = Session(store, record.id, author=AUTHOR)
        while not session.done:
            presented = session.presentation()
            heard = False
            if presented.level_db_hl is not None:
                heard = listener(Tone(presented.frequency_hz, presented.level_db_hl))
            session.answer(heard)
        session.finish()
    return dated(store.visit_bundle(visit.id), at + timedelta(minutes=9))


def dated(bundle: VisitBundle, at: datetime) -> VisitBundle:
    """The visit with results of that moment: the pictures of the docs change only with the page."""
    return replace(
        bundle,
        exams=tuple(
            replace(each, results=tuple(replace(result, at=at) for result in each.results))
            for each in bundle.exams
        ),
    )


def draw_page(pdf: Path, png: Path) -> None:
    """The first page as a small picture."""
    command = ["pdftoppm", "-r", "100", "-png", "-singlefile", pdf, png.with_suffix("")]
    try:
        subprocess.run(command, check=True)
    except FileNotFoundError:
        raise SystemExit(
            "pdftoppm draws the pages: install it (Debian: poppler-utils), or leave DOCS out"
        ) from None
    with Image.open(png) as page:
        page.convert("RGB").quantize(128).save(png, optimize=True)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) == 3 else None)
