"""A clinic's load on the web app: people who answer on their own time, whatever the server does.

Every listener answers 3 to 6 s after the tone's onset (open loop: a slow server does not slow them
down). Measured is the time from the answer to the next tone, commit included. In a second, shorter
run the server is killed in the middle and started again. After both, every answer that was
acknowledged is looked up in the database.
"""

import argparse
import asyncio
import os
import platform
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from statistics import median, quantiles

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

import httpx

import earshift as es
from earshift.clinic import devices as clinic_devices
from earshift.clinic.plan import open_exam, plan_screen
from earshift.clinic.session import VOIDS_OF_TRIAL
from earshift.devices.delivery import Delivery
from earshift.devices.sound import retspl_presets
from earshift.store import Store
from earshift.store.accounts import Accounts
from earshift.web.listen import TRIALS_OF_EXAM
from support.databases import PostgresqlServer, postgresql_tools
from support.web import Served, with_users

BROWSER = {
    "browser": "Chromium",
    "system": "Linux",
    "sample_rate": 48000.0,
    "channels": 2,
    "earphones": "HDA 200",
    "connection": "wired",
    "volume": "50 %",
}
REFERENCE = {500: 10, 1000: 10, 2000: 15, 3000: 20, 4000: 25, 6000: 30, 8000: 30}
AS_BROWSERS = httpx.Limits(keepalive_expiry=300.0)  # s for which they keep an idle connection
SCREENS_EACH = 3  # prepared for everybody, one after the other: some end after a few tones


@dataclass
class Listener:
    """One person with a link per screen, and what became of the answers."""

    links: list[str]
    chance: random.Random
    times_ms: list[float] = field(default_factory=list)
    acknowledged: list[tuple[str, int, bool]] = field(default_factory=list)  # link, trial, heard
    retried: int = 0


def prepare(where: str, people: int) -> list[Listener]:
    """People with a reference and screens of it, ready to be answered, and a calibrated device."""
    with Store.open(where) as store:
        accounts = Accounts(store)
        device = store.add_device(author="bench", name="booth", fingerprint=BROWSER)
        today = datetime.now(UTC).date()
        preset = retspl_presets()["hda200-60318-1"]
        store.add_calibration(
            device.id,
            author="bench",
            done_on=today,
            due_on=today + timedelta(days=1),
            laboratory="bench",
            coupler=preset.coupler,
            table={
                "retspl_db": {f"{f:g}": level for f, level in preset.db_spl.items()},
                "full_scale_db_spl": {e: {"500": 95, "8000": 95} for e in ("right", "left")},
            },
        )
        sound = clinic_devices.sound_of(store, device, today)
        given = Delivery(answered_by="listener", sound=sound, practice=False)
        listeners = []
        for number in range(people):
            links = []
            for turn in range(SCREENS_EACH):  # of a person each: nobody has two tests at once
                person = store.add_person(author="bench", code=f"L{number}-{turn}")
                audiogram = store.open_exam(
                    store.open_visit(person.id, author="bench", zone="UTC", mode="imported").id,
                    author="bench",
                    ear="right",
                    kind="audiogram",
                    design=es.Audiogram(REFERENCE).to_dict(),
                    engine_version=es.__version__,
                )
                plan = plan_screen(
                    store,
                    person.id,
                    "right",
                    reference=audiogram.id,
                    device_id=device.id,
                    delivery=given,
                )
                today_visit = store.open_visit(
                    person.id, author="bench", zone="UTC", mode="self", device_id=device.id
                )
                exam = open_exam(store, today_visit, plan, author="bench")
                links.append(accounts.make_link(today_visit.id, [exam.id], "bench"))
            listeners.append(Listener(links, random.Random(number)))
    return listeners


class Clinic:
    """The server under load, which may be killed and started again at the same port."""

    def __init__(self, folder: Path, where: str, workers: int) -> None:
        self._folder, self._where, self._workers = folder, where, workers
        self.address = ""
        self._served: Served | None = None

    def start(self) -> None:
        port = self.address.rpartition(":")[2] or "0"
        self._served = Served(
            self._folder,
            *("--db", self._where, "--port", port, "--workers", str(self._workers)),
            *("--timezone", "UTC"),
        )
        self.address = self._served.address

    def kill(self) -> None:
        assert self._served is not None
        os.killpg(self._served.process.pid, signal.SIGKILL)
        self._served.__exit__()

    def stop(self) -> None:
        assert self._served is not None
        self._served.__exit__()

    def _each(self, file: str) -> Iterator[list[str]]:
        """The fields of a file of /proc, of every process of the server."""
        assert self._served is not None
        group = os.getpgid(self._served.process.pid)
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if os.getpgid(int(entry.name)) == group:
                    yield (entry / file).read_text().rpartition(")")[2].split()

    def memory_mb(self) -> float:
        """Of all processes of the server."""
        pages = sum(int(fields[1]) for fields in self._each("statm"))
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def cpu_s(self) -> float:
        """Of all processes of the server, so far."""
        ticks = sum(int(fields[11]) + int(fields[12]) for fields in self._each("stat"))
        return ticks / os.sysconf("SC_CLK_TCK")


async def call(
    client: httpx.AsyncClient, listener: Listener, link: str, path: str, body: object
) -> dict[str, object]:
    """Ask until an answer comes, as the listener's page does."""
    headers = {"Authorization": f"Listener {link}", "Origin": str(client.base_url).rstrip("/")}
    while True:
        try:
            answer = await client.post(f"/api/listen{path}", json=body, headers=headers)
            if answer.status_code < 500:
                answer.raise_for_status()
                told: dict[str, object] = answer.json()
                return told
        except httpx.TransportError:
            pass
        listener.retried += 1
        await asyncio.sleep(0.5)


async def listen(client: httpx.AsyncClient, listener: Listener, tones: int) -> None:
    """Answer so many presentations, on the listener's own clock."""
    await asyncio.sleep(listener.chance.uniform(0, 6))
    left = tones
    for link in listener.links:
        play = await call(client, listener, link, "/ready", {"fingerprint": BROWSER})
        due = time.perf_counter()
        while play["state"] == "play" and left:
            asked = play["presentation"]
            assert isinstance(asked, dict)
            # The next answer is due by the listener's clock, however late the tone came.
            due += asked["gap_ms"] / 1e3 + listener.chance.uniform(3, 6)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            heard = asked["level"] is not None and listener.chance.random() < 0.5
            pressed = 300.0 if heard else None
            body = {"trial": asked["trial"], "heard": heard, "reaction_ms": pressed}
            tries, start = listener.retried, time.perf_counter()
            play = await call(client, listener, link, "/answer", body)
            if listener.retried == tries:  # while the server is away there is nothing to time
                listener.times_ms.append(1e3 * (time.perf_counter() - start))
            listener.acknowledged.append((link, asked["trial"], heard))
            left -= 1
        if not left:
            return


async def run(clinic: Clinic, listeners: list[Listener], tones: int, kill: bool) -> float:
    """Everybody listens at once, each by a browser of their own; the server's CPU seconds."""
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                httpx.AsyncClient(
                    base_url=clinic.address, timeout=60, verify=False, limits=AS_BROWSERS
                )
            )
            for _ in listeners
        ]
        while (await clients[0].get("/api/health/ready")).status_code != HTTPStatus.OK:
            await asyncio.sleep(0.2)
        busy = clinic.cpu_s()
        pairs = zip(clients, listeners, strict=True)
        everybody = asyncio.gather(*(listen(client, one, tones) for client, one in pairs))
        if kill:
            await asyncio.sleep(2.5 * tones)  # about the middle
            print("killed", flush=True)
            await asyncio.to_thread(clinic.kill)
            await asyncio.to_thread(clinic.start)
        await everybody
    return clinic.cpu_s() - busy


def lost(where: str, listeners: list[Listener]) -> int:
    """Acknowledged answers that are not in the database as they were given, or are there twice."""
    missing = 0
    with Store.open(where) as store:
        accounts = Accounts(store)
        for listener in listeners:
            by_link: dict[str, dict[int, bool]] = {}
            for link, trial, heard in listener.acknowledged:
                number = trial % TRIALS_OF_EXAM // VOIDS_OF_TRIAL
                by_link.setdefault(link, {})[number] = heard
            for link, given in by_link.items():
                known = accounts.link(link)
                assert known is not None
                stored = {t.number: t.heard for t in store.trials(known.exam_ids[0])}
                missing += sum(stored.get(number) != heard for number, heard in given.items())
                missing += len(stored) - len(given)
    return missing


@contextmanager
def database(kind: str, folder: Path) -> Iterator[str]:
    if kind == "SQLite":
        yield str(folder / "bench.db")
        return
    tools = postgresql_tools()
    assert tools is not None, "PostgreSQL is needed for this row"
    server = PostgresqlServer(tools)
    try:
        yield server.new_database()
    finally:
        server.close()


@dataclass(frozen=True)
class Run:
    """What one run showed: times in ms, answers, the server's memory and CPU, answers lost."""

    kind: str
    workers: int
    people: int
    times_ms: list[float]
    answers: int
    memory_mb: float
    cpu_ms: float  # for each answer
    lost: int

    def percentile(self, share: int) -> float:
        return quantiles(self.times_ms, n=100)[share - 1]


def serve(kind: str, workers: int, people: int, tones: int, kill: bool = False) -> Run:
    """One run on a new database."""
    with tempfile.TemporaryDirectory() as place, database(kind, Path(place)) as where:
        with_users(where)
        listeners = prepare(where, people)
        clinic = Clinic(Path(place), where, workers)
        clinic.start()
        try:
            busy_s = asyncio.run(run(clinic, listeners, tones, kill))
            memory = clinic.memory_mb()
        finally:
            clinic.stop()
        answers = sum(len(one.acknowledged) for one in listeners)
        times = [each for one in listeners for each in one.times_ms]
        found = Run(
            *(kind, workers, people, times, answers, memory),
            *(1e3 * busy_s / answers, lost(where, listeners)),
        )
    print(row(found), flush=True)
    return found


HEAD = (
    "| database | workers | people | answers | median ms | 95th percentile ms "
    "| 99th percentile ms | server's CPU ms an answer | memory MB | lost |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


def row(one: Run) -> str:
    return (
        f"| {one.kind} | {one.workers} | {one.people} | {one.answers} "
        f"| {median(one.times_ms):.0f} | {one.percentile(95):.0f} | {one.percentile(99):.0f} "
        f"| {one.cpu_ms:.0f} | {one.memory_mb:.0f} | {one.lost} |"
    )


def draw(runs: list[Run], folder: Path) -> None:
    """The 95th percentile against people, a line for each database and number of workers."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    for label in sorted({(one.kind, one.workers) for one in runs}):
        line = sorted(
            (one.people, one.percentile(95)) for one in runs if (one.kind, one.workers) == label
        )
        axes.plot(*zip(*line, strict=True), marker="o", label=f"{label[0]}, workers: {label[1]}")
    axes.axhline(100.0, color="0.7", linewidth=1.0)
    axes.set(xlabel="people at once", ylabel="95th percentile, ms", ylim=(0, None))
    axes.legend(frameon=False)
    folder.mkdir(exist_ok=True)
    figure.savefig(folder / "benchmarks-serve.png", dpi=110)


TEXT = """# A clinic's load on the web app

`make bench-serve` wrote this page on {machine}.
Everybody answers 3 to 6 s after the tone's onset, on their own clock, {tones} tones each. The time
is from the answer to the next tone, with the answer on the disk. The server, the listeners and the
database share the machine's cores. CPU time is the server's own, of all its processes, for each
answer: it says what the waiting for other work hides. "Lost" counts acknowledged answers that the
database does not hold exactly once.

{table}

![People against the 95th percentile](images/benchmarks-serve.png)

With the server killed in the middle and started again:

{killed}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, nargs="+", default=[10, 25, 50, 75, 100])
    parser.add_argument("--tones", type=int, default=6)
    parser.add_argument("--many", type=int, default=100, help="people of several workers")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="with --many people")
    parser.add_argument("--kill-tones", type=int, default=4, help="tones of the run with the kill")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write benchmarks-serve.md")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a server is not compiled at every start
    print(HEAD)
    runs = [serve("SQLite", 1, people, options.tones) for people in options.people]
    runs += [serve("PostgreSQL", n, options.many, options.tones) for n in options.workers]
    killed = [
        serve("SQLite", 1, 50, options.kill_tones, kill=True),
        serve("PostgreSQL", 2, 50, options.kill_tones, kill=True),
    ]
    if options.write:
        machine = (
            f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
        )
        text = TEXT.format(
            tones=options.tones,
            machine=machine,
            table="\n".join([HEAD, *map(row, runs)]),
            killed="\n".join([HEAD, *map(row, killed)]),
        )
        (options.write / "benchmarks-serve.md").write_text(text, encoding="utf-8")
        draw(runs, options.write / "images")


if __name__ == "__main__":
    main()
