"""A loop over an exam for experiment scripts: iterate, present, `addResponse`.

The names are those that scripts for trial handlers are used to, so that one handler can stand in
for another; nothing of such a program is needed. All decisions stay with the exam.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from earshift.engine.checks import finite
from earshift.engine.procedure import Procedure
from earshift.engine.refusal import Refusal
from earshift.engine.tone import Stimulus, Tone


class Handler:
    """Gives the stimuli of an exam or screen one by one, and takes the answers.

    >>> for tone in Handler(exam):
    ...     handler.addResponse(present(tone))

    The loop ends when the exam is done, or after `finished = True`. A stimulus without an answer is
    a mistake in the script: the next turn is refused.
    """

    def __init__(self, sitting: Procedure) -> None:
        if not isinstance(sitting, Procedure):
            raise Refusal("a handler needs an earshift Exam or Screen", got=sitting)
        self.sitting = sitting
        self.finished = False
        self._open: Tone | None = None
        self._rows: list[dict[str, Any]] = []

    def __iter__(self) -> Iterator[Tone]:
        return self

    def __next__(self) -> Tone:
        if self._open is not None and not self.finished:
            raise Refusal(f"{self._open} got no answer: call addResponse before the next one")
        if self.finished or self.sitting.done:
            self.finished, self._open = True, None
            raise StopIteration
        self._open = self.sitting.ask()
        return self._open

    def addResponse(self, response: object, intensity: float | None = None) -> None:
        """Take the answer: True or 1 for heard. `intensity`: the level that was really presented.

        Bad input changes nothing.
        """
        if self._open is None:
            raise Refusal("there is no stimulus to answer: take one from the loop first")
        stimulus = self._open
        if intensity is not None:
            stimulus = self._at_level(stimulus, finite(intensity, "intensity"))
        self.sitting.tell(stimulus, response)
        self._rows.append(self.sitting.trials[-1].to_dict())
        self._open = None

    def _at_level(self, stimulus: Tone, level: float) -> Tone:
        name = self.sitting.domain.intensity.name
        values = {**stimulus.to_dict(), name: level}
        if isinstance(stimulus, Tone):
            return Tone(**values)
        return Stimulus(tuple(values.items()))

    def addOtherData(self, name: str, value: Any) -> None:
        """Keep something else with the newest answer, such as a reaction time."""
        if not self._rows:
            raise Refusal("there is no answer yet that other data could belong to")
        if name in self.sitting.trials[-1].to_dict():
            raise Refusal(f"{name!r} is the exam's own: give other data another name")
        self._rows[-1][name] = value

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row for every answer taken here, other data included."""
        return [dict(row) for row in self._rows]

    def saveAsJson(self, path: str | os.PathLike[str]) -> None:
        """Write the exam (`from_dict` reads it back) and the rows with their other data."""
        data = {"exam": self.sitting.to_dict(), "rows": self._rows}
        try:
            text = json.dumps(data, indent=1, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise Refusal(f"other data must be what JSON can hold: {error}") from None
        Path(path).write_text(text + "\n", encoding="utf-8")
