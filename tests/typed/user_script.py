"""A script as a user writes it, typed: mypy --strict must have nothing to say about it."""

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

import earshift as es


def three_quarters(outlook: es.Outlook) -> NDArray[np.float64]:
    return -np.abs(outlook.p_mixed() - 0.75)


def measured(listener: es.Listener) -> es.Exam:
    exam = es.Exam(seed=1, max_tones=20, lapse="estimate", strategy=three_quarters)
    while not exam.done:
        tone: es.Tone = exam.ask()
        exam.tell(tone, heard=listener(tone))
    return exam


def screened(first: es.Exam, listener: es.Listener) -> es.Verdict:
    screen = es.Screen(first, rule="osha-sts", settings=es.RuleSettings(max_tones=20))
    while not screen.done:
        tone = screen.ask()
        screen.tell(tone, heard=listener(tone))
    return screen.verdict([2000, 4000])


def mine() -> es.Screen:
    rule = es.Rule("mine", [es.Criterion((4000, 6000), at_least_db=12)])
    return es.Screen(es.Audiogram({4000: 20, 6000: 25}), rule=rule, limits=es.Limits(cap_db_hl=80))


def other_axes() -> list[float]:
    contrast = es.Axis("contrast_db", "dB", range(-50, 1, 5))
    prior = es.Prior(threshold=-30, threshold_sd=8, spread=3, lapse=(1, 20))
    exam = es.Exam(domain=es.Domain(contrast), prior=prior, guess=0.5, lapse="estimate")
    exam.tell(es.Stimulus({"contrast_db": -20.0}), heard=True)
    contrast_db: float = exam.ask().contrast_db + exam.trials[0].tone.contrast_db
    (found,) = exam.thresholds()
    where: tuple[tuple[str, float], ...] = found.place
    (change,) = es.Screen(exam).verdict().shifts
    curve = exam.psychometric()
    numbers = [contrast_db, found.level, found.low, found.high, change.shift, change.low]
    return [*numbers, len(where), curve.threshold.value, curve.slope.low, curve.lapse.high]


def both_ears(ear: dict[int, int]) -> str:
    """Whole numbers of Hz and dB, as people write audiograms down."""
    listeners = {"right": es.Listener(ear, seed=1), "left": es.Listener(ear, seed=2)}
    screen = es.Screen({"right": es.Audiogram(ear), "left": es.Audiogram(ear)}, ears="both")
    tone = screen.ask()
    screen.tell(tone, heard=listeners[tone.ear or "right"](tone))
    return screen.verdict().left.decision


def main() -> None:
    person = es.Listener({500: 10, 1000: 10, 4000: 30}, seed=1)
    exam = measured(person)
    verdict = screened(exam, person)
    decision: str = verdict.decision
    rows: list[dict[str, Any]] = exam.rows("thresholds")
    stored = json.dumps(exam.to_dict())
    again = es.Exam.from_dict(json.loads(stored))
    print(decision, len(rows), again.trials == exam.trials, other_axes())
    print(both_ears({1000: 10, 2000: 15, 4000: 30}))
    ax = exam.plot()
    ax.set_title("right ear")


if __name__ == "__main__":
    main()
