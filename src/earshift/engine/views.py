"""What exams and screens show of themselves: rows, data frames, pictures, views for notebooks."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from earshift.engine import plots
from earshift.engine.domain import Axis, Domain
from earshift.engine.ears import trials_of
from earshift.engine.refusal import Refusal
from earshift.engine.tables import Row, filled, frame, html
from earshift.engine.thresholds import Location, PlaceThreshold, Threshold
from earshift.engine.tone import Trial
from earshift.engine.values import EARS

if TYPE_CHECKING:
    import polars
    from matplotlib.axes import Axes

Array = NDArray[np.float64]

TABLES = ("trials", "thresholds")
OF_A_THRESHOLD: dict[str, type] = {
    "level_db_hl": float,
    "low_db_hl": float,
    "high_db_hl": float,
    "censored": str,
    "cross_hearing": bool,
}
OF_A_PLACE: dict[str, type] = {"level": float, "low": float, "high": float, "censored": str}


class Viewed(ABC):
    """What an `Exam` and a `Screen` show; see there."""

    domain: Domain
    ears: str | None
    max_tones: int
    guess: float

    @property
    @abstractmethod
    def trials(self) -> tuple[Trial, ...]:
        """All answered tones, with their answers, in order."""

    @property
    @abstractmethod
    def _shown_ears(self) -> tuple[str | None, ...]:
        """The ears that thresholds are shown of."""

    @abstractmethod
    def thresholds(
        self, frequencies_hz: Sequence[Location] | None = None, *, ear: str | None = None
    ) -> list[Threshold]:
        """Thresholds with 95 % intervals."""

    # Tables ---------------------------------------------------------------------------------

    def rows(self, of: str = "trials") -> list[Row]:
        """Results as plain rows, all with the same columns: `pandas.DataFrame(exam.rows())`.

        Args:
            of: "trials", one row for each answered tone in order (of a screen with `p_changed`,
                the probability of change after it), or "thresholds", one row for each frequency
                and ear with its 95 % interval.

        Returns:
            A list of dictionaries with plain values.

        Raises:
            Refusal: for another table than these.

        Examples:
            >>> import earshift as es
            >>> exam = es.Exam()
            >>> exam.tell(es.Tone(1000, 40), heard=True)
            >>> exam.rows()
            [{'trial': 1, 'ear': None, 'frequency_hz': 1000.0, 'level_db_hl': 40.0, 'heard': True}]
        """
        columns = self._columns(of)
        found = self._trial_rows() if of == "trials" else self._threshold_rows()
        return [filled(row, columns) for row in found]

    def to_frame(self, of: str = "trials") -> "polars.DataFrame":
        """The rows as a polars frame, with a type for each column; needs the extra `study`.

        Args:
            of: "trials" or "thresholds", as of `rows`.

        Returns:
            A `polars.DataFrame` with the columns of `rows`.

        Raises:
            Refusal: without the package polars.
        """
        return frame(self.rows(of), self._columns(of))

    def _columns(self, of: str) -> dict[str, type]:
        if of not in TABLES:
            raise Refusal(f"rows are of {' or '.join(TABLES)}, got {of!r}")
        tones = self.domain.of_tones
        ear: dict[str, type] = {"ear": str} if tones else {}
        if of == "trials":
            axes = ("frequency_hz", "level_db_hl") if tones else tuple(reversed(self.domain.names))
            own = {**dict.fromkeys(axes, float), "heard": bool, **self._further_columns()}
            return {"trial": int, **ear, **own}
        places = dict.fromkeys((axis.name for axis in self.domain.smooth), float)
        return {**ear, **places, **(OF_A_THRESHOLD if tones else OF_A_PLACE)}

    def _further_columns(self) -> dict[str, type]:
        """What is known of a trial besides its answer."""
        return {}

    def _trial_rows(self) -> list[Row]:
        return [{"trial": n, **trial.to_dict()} for n, trial in enumerate(self.trials, start=1)]

    def _threshold_rows(self) -> list[Row]:
        return [
            {"ear": ear, **flat(threshold)}
            for ear in self._shown_ears
            for threshold in self.thresholds(ear=ear)
        ]

    # Pictures -------------------------------------------------------------------------------

    def plot(
        self,
        ax: "Axes | None" = None,
        *,
        frequencies_hz: Sequence[Location] | None = None,
        ear: str | None = None,
    ) -> "Axes":
        """Draw the thresholds with their 95 % intervals and the tones; gives the axes back.

        An audiogram: dB HL downwards, one octave as long as 20 dB, a red O for the right ear and a
        blue X for the left, heard tones filled, a number at tones that were asked several times. On
        another axis the thresholds along it; on two, a heat map of them; without one, the trials
        one after the other with the threshold. Symbols stand where tones were given; between them
        the line says what follows from the others.

        Args:
            ax: matplotlib axes to draw on; by default new ones.
            frequencies_hz: where thresholds are drawn, by default all of the domain and all tested.
            ear: of both ears, the one to draw (by default both); of one ear, which it is.

        Returns:
            The matplotlib axes that were drawn on.

        Raises:
            Refusal: for axes that are none, an unknown ear, or more than two smooth axes.
        """
        if ear is not None and not self.domain.of_tones:
            raise Refusal(f"stimuli that are no tones have no ear: leave out ear={ear!r}")
        if ear is not None and ear not in EARS:
            raise Refusal("ear must be 'right' or 'left'", got=ear)
        ears = self._shown_ears if ear is None or self.ears is None else (ear,)
        axes = self.domain.smooth
        if len(axes) > 2:
            raise Refusal(
                f"a picture shows at most two smooth axes, this domain has {len(axes)}",
                advice="take rows('thresholds') and draw them as you like",
            )
        if len(axes) == 2:
            return self._surface(plots.on(ax, 5.6, 4.4))
        if not axes:
            return self._track_of_trials(plots.on(ax, 5.6, 4.0))
        where = self._drawn_places(ears) if frequencies_hz is None else frequencies_hz
        lines = [line for one in ears for line in self._lines(where, one, one or ear)]
        answers = [replace(one, ear=one.ear or ear) for one in self._drawn_answers(ears)]
        if self.domain.of_tones:
            scales = {"frequency": scale_of(axes[0]), "level": scale_of(self.domain.intensity)}
            return plots.audiogram(ax, lines, answers, **scales, words=self._words)
        scales = {"place": scale_of(axes[0]), "level": scale_of(self.domain.intensity)}
        on = plots.on(ax, 5.6, 4.4)
        return plots.thresholds(on, lines, answers, **scales, words=self._words)

    @property
    def _words(self) -> plots.Words:
        """How a picture calls the answers."""
        return plots.words_of(self.domain.of_tones, self.guess)

    def _lines(
        self, where: Sequence[Location], ear: str | None, shown: str | None
    ) -> list[plots.Line]:
        """What is drawn of an ear besides its answers; of the only one (None) as `shown` says."""
        label = f"{shown} ear (95 % band)" if shown else "threshold (95 % band)"
        return [line_of(self.thresholds(where, ear=ear), label, shown, self._tested_at(ear))]

    def _tested_at(self, ear: str | None) -> frozenset[float]:
        """Where along the smooth axis this ear was given tones."""
        return places_of(self.trials, self.domain, ear)

    def _drawn_places(self, ears: Sequence[str | None]) -> list[Location]:
        """All places of the domain, and those between them that were tested."""
        tested = {place for ear in ears for place in self._tested_at(ear)}
        return sorted({*self.domain.smooth[0].values, *tested})

    def _drawn_answers(self, ears: Sequence[str | None]) -> list[plots.Answer]:
        """Answered tones of these ears, as they are drawn."""
        place, level = self.domain.smooth[0].name, self.domain.intensity.name
        return [
            plots.Answer(
                getattr(trial.tone, place),
                getattr(trial.tone, level),
                trial.heard,
                None if self.ears is None else trial.tone.ear,
            )
            for trial in self.trials
            if self.ears is None or trial.tone.ear in ears
        ]

    def _track_of_trials(self, ax: "Axes") -> "Axes":
        """Trial by trial, with thresholds from the first to the last: of one function."""
        ends = (1.0, float(max(len(self.trials), 2)))
        level = self.domain.intensity
        lines = [
            replace(
                line,
                x=ends,
                y=[*line.y] * 2,
                low=[*line.low] * 2,
                high=[*line.high] * 2,
                tested=frozenset(),
            )
            for line in self._lines([()], None, None)
        ]
        answers = [
            plots.Answer(float(number), getattr(trial.tone, level.name), trial.heard)
            for number, trial in enumerate(self.trials, start=1)
        ]
        place = plots.Scale("trial", *ends, False)
        return plots.thresholds(
            ax, lines, answers, place=place, level=scale_of(level), words=self._words
        )

    def _surface(self, ax: "Axes") -> "Axes":
        across, up = self.domain.smooth
        found = self.thresholds([(x, y) for x in across.values for y in up.values])
        levels = np.array([flat(one)["level"] for one in found])
        return plots.surface(
            ax,
            across.values,
            up.values,
            levels.reshape(len(across.values), len(up.values)),
            across=scale_of(across),
            up=scale_of(up),
            label=scale_of(self.domain.intensity).label,
        )

    # In a notebook --------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._facts()}>"

    def _facts(self) -> str:
        count = len(self.trials)
        whose = "" if self.ears is None else "both ears, "
        unit = "tone" if self.domain.of_tones else "trial"
        return f"{whose}{count} {unit}{'s' if count != 1 else ''} of at most {self.max_tones}"

    def _repr_html_(self) -> str:
        rows = self.rows("thresholds") if self.trials else []
        return html(f"{type(self).__name__}: {self._facts()}", (), rows)


def flat(one: Threshold | PlaceThreshold) -> Row:
    """A threshold as plain values, its place by the axes' names."""
    row: dict[str, Any] = asdict(one)
    return {**dict(row.pop("place", ())), **row}


def scale_of(axis: Axis) -> plots.Scale:
    """An axis of a domain as one of a picture."""
    label = plots.label_of(axis.name, axis.unit)
    return plots.Scale(label, axis.values[0], axis.values[-1], axis.logarithmic)


def places_of(trials: Sequence[Trial], domain: Domain, ear: str | None) -> frozenset[float]:
    """Where along the smooth axis tones were given to this ear; where there is no axis, nowhere."""
    names = [axis.name for axis in domain.smooth[:1]]
    return frozenset(getattr(one.tone, name) for one in trials_of(trials, ear) for name in names)


def line_of(
    found: Sequence[Threshold | PlaceThreshold],
    label: str,
    ear: str | None,
    tested: frozenset[float],
    before: bool = False,
) -> plots.Line:
    """Thresholds along one axis as a line of a picture, with symbols where there were tones."""
    rows = [flat(one) for one in found]
    unit = "_db_hl" if rows and "level_db_hl" in rows[0] else ""
    where = next(iter(rows[0]), "") if rows else ""
    return plots.Line(
        label,
        [row[where] for row in rows],
        [row[f"level{unit}"] for row in rows],
        [row[f"low{unit}"] for row in rows],
        [row[f"high{unit}"] for row in rows],
        ear,
        before,
        {k: row["censored"] for k, row in enumerate(rows) if row["censored"]},
        tested,
    )
