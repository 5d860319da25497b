"""Whether `es.Handler` fits where PsychoPy's own handlers stand: `make psychopy-check`.

Runs one script with a StairHandler, a QuestHandler and ours, within an ExperimentHandler, and
compares what a script can see of each. Leaves with an error when something is missing.
"""

import inspect
import sys
import tempfile
from pathlib import Path
from typing import Any

from psychopy import data, logging

import earshift as es

ATTRIBUTES = ("intensities", "data", "otherData", "thisTrialN", "finished", "intensity", "nTrials")
METHODS = ("next", "addResponse", "addData", "addOtherData", "saveAsText", "saveAsJson")
METHODS += ("setExp", "getExp")


def kind(value: Any) -> str:
    """The type that a script sees: numpy's floats are floats."""
    return "float" if isinstance(value, float) else type(value).__name__


def script(handler: Any, folder: Path) -> dict[str, Any]:
    """A script as it is written for a staircase: a listener who hears from 45 on."""
    experiment = data.ExperimentHandler(name="check", savePickle=False, saveWideText=False)
    experiment.addLoop(handler)
    seen = []
    for level in handler:
        handler.addResponse(int(level >= 45))
        handler.addOtherData("rt", 0.3)
        seen.append((handler.thisTrialN, len(handler.intensities), len(handler.data)))
        experiment.nextEntry()
    handler.saveAsText(str(folder / handler.name))
    return {
        "counts": seen[:5],
        "kinds": {name: kind(getattr(handler, name)) for name in ATTRIBUTES},
        "numbers": {isinstance(level, float | int) for level in handler.intensities},
        "answers": {type(answer).__name__ for answer in handler.data},
        "aligned": len(handler.otherData["rt"]) == len(handler.data),
        "finished": handler.finished,
        "columns": sorted(
            name.partition(".")[2] for name in experiment.entries[0] if name.startswith("our.")
        ),
        "rows": len(experiment.entries),
        "saved": bool(list(folder.glob(f"{handler.name}*"))),
    }


def one_function(quest: Any) -> Any:
    """A handler of ours that was told what a QuestHandler was told."""
    axis = es.Axis("level", "dB", range(0, 91, 5))
    ours = es.Handler(es.Exam(domain=es.Domain(axis), max_tones=100), levels=True)
    for level, answer in zip(quest.intensities, quest.data, strict=True):
        ours.next()
        ours.addData(answer, min(max(float(level), 0.0), 90.0))
    return ours


def main() -> int:
    """Compare, and say what differs."""
    logging.console.setLevel(logging.CRITICAL)
    stair = data.StairHandler(40.0, nTrials=8, nReversals=1, stepSizes=5, stepType="lin",
                              minVal=0, maxVal=90, name="our")  # fmt: skip
    quest = data.QuestHandler(40.0, 10.0, nTrials=8, minVal=0, maxVal=90, name="our")
    ours = es.Handler(es.Exam.clinical(seed=1, max_tones=8), levels=True, name="our")
    found = {}
    for title, handler in (("StairHandler", stair), ("QuestHandler", quest), ("ours", ours)):
        with tempfile.TemporaryDirectory() as folder:
            found[title] = script(handler, Path(folder))
    wrong = []
    for title in ("StairHandler", "QuestHandler"):
        for what in ("counts", "kinds", "numbers", "answers", "aligned", "finished", "saved"):
            if found[title][what] != found["ours"][what]:
                wrong.append(f"{what}: {title} {found[title][what]}, ours {found['ours'][what]}")
        for name in {"response", "intensity", "thisTrialN"} - set(found["ours"]["columns"]):
            wrong.append(f"ExperimentHandler has no column {name} of ours")
    for name in METHODS:
        theirs = list(inspect.signature(getattr(stair, name)).parameters)
        own = list(inspect.signature(getattr(ours, name)).parameters)
        if own != theirs:
            wrong.append(f"{name} takes {theirs}, ours {own}")
    estimates = {title: (one.mean(), one.quantile(0.5)) for title, one in
                 (("QuestHandler", quest), ("ours", one_function(quest)))}  # fmt: skip
    # Their numbers differ by what either expects; that both are levels is what a script needs.
    if not all(0.0 <= float(level) <= 90.0 for both in estimates.values() for level in both):
        wrong.append(f"mean and quantile: {estimates}")
    for line in wrong:
        print(line)
    print("es.Handler fits in place of PsychoPy's handlers" if not wrong else "it does not fit")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
