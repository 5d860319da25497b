"""What a screen shows of itself: its trials with P(change), its reference, the way to a verdict."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from earshift.engine import plots
from earshift.engine.ears import the_other
from earshift.engine.procedure import FIT, Procedure
from earshift.engine.tables import Row, html
from earshift.engine.thresholds import (
    SAMPLES,
    Location,
    Threshold,
    locations_of,
    positive_slope_samples,
    threshold,
    thresholds_from_samples,
)
from earshift.engine.tone import Trial
from earshift.engine.track import EarTrack, Track
from earshift.engine.values import EARS
from earshift.engine.verdict import NOTCH, Verdict
from earshift.engine.views import line_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class ScreenViews(Procedure):
    """What a `Screen` shows; see there."""

    p_same_change: float
    _tracks: dict[str | None, Track]

    @abstractmethod
    def verdict(self, frequencies_hz: Sequence[Location] | None = None) -> Verdict:
        """What the screen says now."""

    def _drop(self, trial: Trial, ear: str | None) -> None:
        super()._drop(trial, ear)
        for tested, track in self._tracks.items():
            track.take_back(tested == ear)

    def _further_columns(self) -> dict[str, type]:
        return {"p_changed": float}

    def _trial_rows(self) -> list[Row]:
        rows = super()._trial_rows()
        return [{**row, "p_changed": p} for row, p in zip(rows, self._trail(), strict=True)]

    def _trail(self) -> list[float]:
        """P(change) of a tone's ear after each tone."""
        tracks = {ear: track.without_trials() for ear, track in self._tracks.items()}
        for ear, track in tracks.items():
            if ear is not None:
                track.tie(tracks[the_other(ear)], self.p_same_change)
        out = []
        for trial in self._trials:
            ear = None if self.ears is None else trial.tone.ear
            told = tracks[ear]
            told.take(trial, own=True)
            if isinstance(told, EarTrack):
                out.append(told.p_changed)
            else:
                out.append(self._tracks[ear].p_changed_after(len(told.trials)))
        return out

    def plot_p_changed(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the probability of change after each tone; gives the axes back.

        Under a rule that it is met, of a notch that there is one; of both ears, each one's.
        """
        first = {ear: track.p_changed_after(0) for ear, track in self._tracks.items()}
        trails: dict[str | None, list[tuple[int, float, bool]]] = {
            ear: [(0, p, False)] for ear, p in first.items()
        }
        for number, (trial, p) in enumerate(zip(self._trials, self._trail(), strict=True), start=1):
            ear = None if self.ears is None else trial.tone.ear
            trails[ear].append((number, p, trial.heard))
        return plots.probability(plots.on(ax, 5.4, 3.8), trails, label=self._asked_words)

    @property
    def _asked_words(self) -> str:
        found = self._verdicts_of_ears()[0]
        if found.protocol == NOTCH:
            return "P(notch)"
        return "P(changed)" if found.rule is None else "P(rule met)"

    def _verdicts_of_ears(self) -> list[Verdict]:
        return [track.verdict() for track in self._tracks.values()]

    def plot(
        self,
        ax: "Axes | None" = None,
        *,
        frequencies_hz: Sequence[Location] | None = None,
        ear: str | None = None,
    ) -> "Axes":
        """Draw the thresholds now and before with their 95 % intervals, and the tones.

        See `Exam.plot`; the reference is grey and dashed, and the title says the decision.
        """
        drawn = super().plot(ax, frequencies_hz=frequencies_hz, ear=ear)
        tested = [ear] if ear is not None else list(self._tracks)
        said = [(one, self._tracks[one]) for one in tested]
        words = [
            f"{f'{one}: ' if one else ''}{track.decision} (P = {track.p_changed:.3f})"
            for one, track in said
        ]
        drawn.set_title("\n".join(words), fontsize=10)
        return drawn

    def _lines(self, where: Sequence[Location], ear: str | None) -> list[plots.Line]:
        whose = f"{ear} ear" if ear else "now"
        lines = [line_of(self.thresholds(where, ear=ear), f"{whose} (95 % band)", ear)]
        before = self._before(where, ear)
        if before:
            label = f"{ear} ear, reference" if ear else "reference (95 % band)"
            lines.insert(0, line_of(before, label, ear, before=True))
        return lines

    def _before(self, where: Sequence[Location], ear: str | None) -> list[Threshold]:
        """The thresholds of the reference, as the question sees it; none without one."""
        track = self._tracks[ear]
        locations, places = locations_of(self.domain, where)
        if not isinstance(track, EarTrack):
            return track.reference_thresholds([location[0] for location in locations])
        mean, cov = track.setup.reference.latent(places)
        draws = positive_slope_samples(mean, cov, [0], SAMPLES, self._chance(FIT))
        return thresholds_from_samples(
            locations, threshold(draws[:, :1], draws[:, 1:]), self.domain
        )

    def _repr_html_(self) -> str:
        ears = EARS if self.ears is not None else ("",)
        said = [
            verdict.said(ear or None)
            for ear, verdict in zip(ears, self._verdicts_of_ears(), strict=True)
        ]
        return html(f"Screen: {self._facts()}", said, self.verdict().rows())
