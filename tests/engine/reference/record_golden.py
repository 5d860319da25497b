"""Record golden_exam.json and golden_screen.json: whole sittings, tone by tone, for the tests.

    python tests/engine/reference/record_golden.py

Needs earshift. Run it again when the method's numbers change on purpose (a new hyperprior in
norms.json, say), look at the difference, and commit it together with the change. The ears and their
chance are written out here, so that only the choice of tones can change.
"""

import json
from pathlib import Path
from typing import Any

import earshift as es

HZ = (500.0, 1000.0, 2000.0, 3000.0, 4000.0, 6000.0, 8000.0)
BEFORE = dict(zip(HZ, (25.0, 30.0, 40.0, 45.0, 50.0, 60.0, 65.0), strict=True))
AFTER = dict(zip(HZ, (30.0, 35.0, 45.0, 55.0, 65.0, 70.0, 75.0), strict=True))
EXAM_TONES, SCREEN_TONES = 50, 15


def write(name: str, data: dict[str, Any]) -> None:
    """One trial a line."""
    trials = ",\n".join(json.dumps(row) for row in data.pop("trials"))
    text = json.dumps({"made_by": Path(__file__).name, **data})
    path = Path(__file__).with_name(name)
    path.write_text(f'{text[:-1]}, "trials": [\n{trials}\n]}}\n', encoding="utf-8")


def main() -> None:
    """Run one exam and one screen and write them down."""
    exam, listener = es.Exam(seed=11), es.Listener(BEFORE, seed=12)
    while len(exam.trials) < EXAM_TONES:
        tone = exam.ask()
        exam.tell(tone, listener(tone))
    write("golden_exam.json", exam.to_dict())

    screen, listener = es.Screen(exam, "paper", seed=13), es.Listener(AFTER, seed=14)
    log_bf = [screen.log_bf]
    while len(screen.trials) < SCREEN_TONES:
        tone = screen.ask()
        screen.tell(tone, listener(tone))
        log_bf.append(screen.log_bf)
    write("golden_screen.json", {**screen.to_dict(), "log_bf": log_bf})


if __name__ == "__main__":
    main()
