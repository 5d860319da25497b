"""Record single_ear_digits.json: numbers of one ear's exam and screens, to the last digit.

    python tests/engine/reference/record_digits.py

Needs earshift. The file was recorded before both ears could be examined together; a change that is
not meant to touch single ears leaves every digit as it is.
"""

import json
from pathlib import Path
from typing import Any

import earshift as es

PATH = Path(__file__).with_name("single_ear_digits.json")
HZ = (500.0, 1000.0, 2000.0, 3000.0, 4000.0, 6000.0, 8000.0)
BEFORE = dict(zip(HZ, (25.0, 30.0, 40.0, 45.0, 50.0, 60.0, 65.0), strict=True))
AFTER = dict(zip(HZ, (30.0, 35.0, 45.0, 55.0, 65.0, 70.0, 75.0), strict=True))
TONES = 8


def run(sitting: Any, ear: dict[float, float], tones: int, seed: int) -> Any:
    listener = es.Listener(ear, seed=seed, lapse=0.02)
    while len(sitting.trials) < tones:
        tone = sitting.ask()
        sitting.tell(tone, listener(tone))
    return sitting


def digits() -> dict[str, Any]:
    """Fits, thresholds and verdicts of one ear, as plain numbers."""
    settings = {"strategy": "level_set", "halton_tones": 5, "guess": 0.01, "lapse": 0.02}
    exam = run(es.Exam(seed=3, domain="audiometer", **settings), BEFORE, 30, 4)
    out: dict[str, Any] = {
        "trials": [trial.to_dict() for trial in exam.trials],
        "theta": exam.field.theta.tolist(),
        "log_evidence": exam.field.log_evidence,
        "thresholds": [t.level_db_hl for t in exam.thresholds()],
        "best scores": exam.scores().max(axis=1).tolist(),
    }
    # What `best` was then.
    screen = run(es.Screen(exam, "best-0.1", seed=5), AFTER, TONES, 6)
    out["best"] = {
        "trials": [trial.to_dict() for trial in screen.trials],
        "log_bf": screen.log_bf,
        "p_changed": screen.p_changed,
        "shifts": [s.shift_db for s in screen.verdict().shifts],
    }
    return out


if __name__ == "__main__":
    PATH.write_text(json.dumps(digits(), indent=1) + "\n", encoding="utf-8")
