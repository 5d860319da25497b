"""A loop over an exam for experiment scripts: iterate, present, `addResponse`.

The names are those of PsychoPy's staircase handlers, so that this one can stand in for a
StairHandler or a QuestHandler; nothing of that program is needed. All decisions stay with the exam.
"""

import csv
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from earshift.engine.checks import finite
from earshift.engine.field_exam import FieldExam
from earshift.engine.procedure import Procedure
from earshift.engine.refusal import Refusal
from earshift.engine.thresholds import Location, locations_of
from earshift.engine.tone import Asked, Stimulus, Tone

FilePath = str | os.PathLike[str]
COLLISIONS = ("rename", "overwrite", "fail")


class Handler:
    """Gives the stimuli of an exam or screen one by one, and takes the answers.

    The loop ends when the exam is done, or after `finished = True`. A stimulus without an
    answer is a mistake in the script: the next turn is refused. In a script for a StairHandler,
    which knows of a level alone, `levels=True` gives the levels; `stimulus` is the whole tone.

    Args:
        sitting: the exam or screen.
        levels: whether the loop gives levels instead of tones.
        name: of the loop, for the columns of PsychoPy's ExperimentHandler.
        extraInfo: about the session, kept with what is saved.

    Attributes:
        finished: set it to end the loop.
        intensities: the levels that were presented, also one that waits for its answer.
        data: the answers, 1 for heard.
        otherData: whatever else was kept, a list for each name with None where there is nothing.
        thisTrialN: number of the present stimulus, from 0; -1 before the first.
        nTrials: after how many the exam is over at the latest.

    Raises:
        Refusal: for a next turn without an answer, and pickles, which are not written.

    Examples:
        >>> import earshift as es
        >>> handler = Handler(es.Exam(seed=1, max_tones=3))
        >>> for tone in handler:
        ...     handler.addResponse(tone.level_db_hl > 30)
        >>> len(handler.data)
        3
    """

    def __init__(
        self,
        sitting: Procedure,
        *,
        levels: bool = False,
        name: str = "",
        extraInfo: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(sitting, Procedure):
            raise Refusal("a handler needs an earshift Exam or Screen", got=sitting)
        self.sitting = sitting
        self.levels = levels
        self.name = name
        self.extraInfo = None if extraInfo is None else dict(extraInfo)
        self.finished = False
        self.nTrials = sitting.max_tones
        self._open: Asked | None = None
        self._rows: list[dict[str, Any]] = []
        self._other: list[dict[str, Any]] = []  # by the stimulus, the open one's last
        self._experiment: Any = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        """The next stimulus (its level, with `levels`), which then waits for its answer.

        Returns:
            A `Tone` or `Stimulus`, or its level.

        Raises:
            Refusal: where the one before got no answer.
        """
        if self._open is not None and not self.finished:
            raise Refusal(f"{self._open} got no answer: call addResponse before the next one")
        if self.finished or self.sitting.done:
            if self._open is not None:
                self._other.pop()
            self.finished, self._open = True, None
            if self._experiment is not None:
                self._experiment.loopEnded(self)
            raise StopIteration
        self._open = self.sitting.ask()
        self._other.append({})
        return self.intensity if self.levels else self._open

    next = __next__  # for scripts that take a stimulus without a loop

    @property
    def stimulus(self) -> Asked | None:
        """The tone that waits for its answer, if any."""
        return self._open

    @property
    def intensity(self) -> float:
        """The level of the tone that waits for its answer, or that would be asked next."""
        return self._level(self._open or self.sitting.ask())

    def _level(self, stimulus: Tone) -> float:
        return float(getattr(stimulus, self.sitting.domain.intensity.name))

    @property
    def thisTrialN(self) -> int:
        """Number of the present stimulus, from 0; -1 before the first."""
        return len(self._other) - 1

    @property
    def intensities(self) -> list[float]:
        """The levels that were presented, in order."""
        name = self.sitting.domain.intensity.name
        open_ = [] if self._open is None else [self._level(self._open)]
        return [float(row[name]) for row in self._rows] + open_

    @property
    def data(self) -> list[int]:
        """The answers in order, 1 for heard and 0 for missed."""
        return [int(row["heard"]) for row in self._rows]

    @property
    def otherData(self) -> dict[str, list[Any]]:
        """Other data by name, a value for each stimulus."""
        names = dict.fromkeys(name for other in self._other for name in other)
        return {name: [other.get(name) for other in self._other] for name in names}

    def addResponse(self, result: object, intensity: float | None = None) -> None:
        """Take the answer. Bad input changes nothing.

        Args:
            result: True or 1 for heard (correct), False or 0 for missed.
            intensity: the level that was really presented, in the unit of the exam's levels.

        Raises:
            Refusal: where nothing waits for an answer, or for an answer or a level that is none.
        """
        if self._open is None:
            raise Refusal("there is no stimulus to answer: take one from the loop first")
        stimulus: Tone | Stimulus = self._open
        if intensity is not None:
            stimulus = self._at_level(self._open, finite(intensity, "intensity"))
        self.sitting.tell(stimulus, result)
        self._rows.append(self.sitting.trials[-1].to_dict())
        self._open = None
        if self._experiment is not None:
            self._experiment.addData(f"{self.name}.response", self.data[-1])

    addData = addResponse  # noqa: N815 - its name in old scripts

    def mean(self, place: Location = ()) -> float:
        """Mean of the threshold as the answers leave it, as a QuestHandler's.

        Args:
            place: frequency in Hz, or a place on other axes; none where there is one function.

        Returns:
            A level in the unit of the exam's levels.

        Raises:
            Refusal: of a screen, an exam of both ears, or for a place outside the domain.
        """
        return self._of_threshold(place, lambda draws: float(draws.mean()))

    def quantile(self, p: float = 0.5, place: Location = ()) -> float:
        """Where the threshold lies below with a probability.

        Args:
            p: the probability.
            place: as of `mean`.

        Returns:
            A level in the unit of the exam's levels.

        Raises:
            Refusal: as of `mean`, or for a `p` that is no probability.
        """
        if not 0.0 <= finite(p, "p") <= 1.0:
            raise Refusal("p must be a probability", got=p)
        return self._of_threshold(place, lambda draws: float(np.quantile(draws, p)))

    def _of_threshold(self, place: Location, number: Callable[[Any], float]) -> float:
        exam = self.sitting
        if not isinstance(exam, FieldExam):
            raise Refusal("an exam has thresholds to estimate; a screen's are in its verdict")
        locations, _ = locations_of(exam.domain, [place])
        draws = exam._curves(locations, exam._spoken_of(None)).threshold[:, 0]
        axis = exam.domain.intensity
        ends = axis.model_values[0], axis.model_values[-1]  # as `thresholds` cuts them
        return axis.from_model(number(np.clip(draws, *ends)))

    def _at_level(self, stimulus: Tone, level: float) -> Tone | Stimulus:
        name = self.sitting.domain.intensity.name
        values = {**stimulus.to_dict(), name: level}
        if isinstance(stimulus, Tone):
            return Tone(**values)
        return Stimulus(tuple(values.items()))

    def addOtherData(self, dataName: str, value: Any) -> None:
        """Keep something else with the present stimulus, such as a reaction time.

        That is the one that waits for its answer, or else the newest that got one.

        Args:
            dataName: of the column; not one of the exam's own.
            value: what JSON can hold, if `saveAsJson` is to write it.

        Raises:
            Refusal: before the first stimulus, or for a name of the exam's own.
        """
        if not self._other:
            raise Refusal("there is no answer yet that other data could belong to")
        if dataName in (*self.sitting.domain.names, "ear", "heard"):
            raise Refusal(f"{dataName!r} is the exam's own: give other data another name")
        self._other[-1][dataName] = value
        if self._experiment is not None:
            self._experiment.addData(dataName, value)

    def setExp(self, exp: Any) -> None:
        """Tell PsychoPy's ExperimentHandler of every answer; its `addLoop` calls this.

        Args:
            exp: the ExperimentHandler.
        """
        self._experiment = exp

    def getExp(self) -> Any:
        """The ExperimentHandler that is told, if any.

        Returns:
            The ExperimentHandler, or None.
        """
        return self._experiment

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row for every answer taken here, other data included."""
        return [{**row, **other} for row, other in zip(self._rows, self._other, strict=False)]

    def saveAsText(
        self,
        fileName: FilePath,
        delim: str | None = None,
        matrixOnly: bool = False,
        fileCollisionMethod: str = "rename",
        encoding: str = "utf-8-sig",
    ) -> Path:
        """Write a table with one row for every answer; gives the file that was written.

        Args:
            fileName: with .csv or .tsv; without either, .tsv is added.
            delim: between the cells; by default a comma for .csv, else a tab.
            matrixOnly: leave out `extraInfo`, which otherwise stands in columns of its own.
            fileCollisionMethod: what happens where the file exists: "rename" writes beside it,
                "overwrite" over it, "fail" is refused.
            encoding: of the text.

        Returns:
            The path of the file.

        Raises:
            Refusal: for a file that exists, where asked; for a method that is none.
        """
        path = Path(fileName)
        if path.suffix not in (".csv", ".tsv", ".txt"):
            path = path.with_name(f"{path.name}.tsv")
        info = {} if matrixOnly or self.extraInfo is None else self.extraInfo
        rows = [{**info, **row} for row in self.rows]
        names = list(dict.fromkeys(name for row in rows for name in row))
        path = _free(path, fileCollisionMethod)
        with path.open("w", encoding=encoding, newline="") as file:
            between = ("," if path.suffix == ".csv" else "\t") if delim is None else delim
            table = csv.DictWriter(file, names, delimiter=between, lineterminator="\n")
            table.writeheader()
            table.writerows(rows)
        return path

    def saveAsJson(
        self,
        fileName: FilePath | None = None,
        encoding: str = "utf-8",
        fileCollisionMethod: str = "overwrite",
    ) -> str | None:
        """Write the exam (`Exam.from_dict` reads it back) and the rows with their other data.

        Args:
            fileName: of the file; None gives the text instead.
            encoding: of the text.
            fileCollisionMethod: as of `saveAsText`.

        Returns:
            The text, where there is no file.

        Raises:
            Refusal: for other data that JSON cannot hold, or a file that exists, where asked.
        """
        data: dict[str, Any] = {"exam": self.sitting.to_dict(), "rows": self.rows}
        if self.extraInfo is not None:
            data["extraInfo"] = self.extraInfo
        try:
            text = json.dumps(data, indent=1, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise Refusal(f"other data must be what JSON can hold: {error}") from None
        if fileName is None:
            return text
        _free(Path(fileName), fileCollisionMethod).write_text(text + "\n", encoding=encoding)
        return None

    def saveAsPickle(self, *_: Any, **__: Any) -> None:
        """Refused: a pickle runs whatever code it holds when it is read.

        Raises:
            Refusal: always.
        """
        raise Refusal(
            "a handler is not saved as a pickle: reading one runs whatever code it holds, and only "
            "the version that wrote it can read it",
            advice="saveAsJson keeps the whole exam, saveAsText a table",
        )

    def saveAsExcel(self, *_: Any, **__: Any) -> None:
        """Refused: a table in text serves every program.

        Raises:
            Refusal: always.
        """
        raise Refusal(
            "a handler is not saved as a workbook",
            advice="saveAsText('x.csv') writes a table that Excel opens",
        )

    def __reduce__(self) -> Any:
        self.saveAsPickle()

    def __repr__(self) -> str:
        return f"<Handler of {self.sitting!r}>"


def _free(path: Path, collision: str) -> Path:
    """The path to write to, where something may stand already."""
    if collision not in COLLISIONS:
        raise Refusal(f"fileCollisionMethod is one of {', '.join(COLLISIONS)}, got {collision!r}")
    if collision == "overwrite" or not path.exists():
        return path
    if collision == "fail":
        raise Refusal(
            f"{path} exists already", advice="choose another name, or overwrite or rename"
        )
    number = 1
    while (other := path.with_name(f"{path.stem}_{number}{path.suffix}")).exists():
        number += 1
    return other
