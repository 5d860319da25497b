"""What a screen shows of itself: evidence, trials with P(change), reference, way to a verdict."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from earshift.engine import plots
from earshift.engine.ears import the_other
from earshift.engine.procedure import FIT, Procedure
from earshift.engine.reference import reference_from_dict, tested_at
from earshift.engine.refusal import Refusal
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

    from earshift.engine.field import Field  # it loads its compiled kernels, which a rule needs not


class ScreenViews(Procedure):
    """What a `Screen` shows; see there."""

    p_same_change: float
    _tracks: dict[str | None, Track]
    _reference_data: dict[str | None, dict[str, Any] | None]

    def of(self, ear: str) -> Track:
        """One ear's part of a screen of both.

        Args:
            ear: "right" or "left".

        Returns:
            What the screen knows of that ear: `decision`, `p_changed`, `thresholds` and more.

        Raises:
            Refusal: for an ear that is none, or a screen of one ear.
        """
        if self.ears is None:
            raise Refusal(f"this screen is of one ear: there is no {ear!r} ear to speak of")
        if ear not in EARS:
            raise Refusal("ear must be 'right' or 'left'", got=ear)
        return self._tracks[ear]

    def _track(self, ear: str | None = None) -> Track:
        """The part that is spoken of: the only one, or the named ear's."""
        if ear is not None:
            return self.of(ear)
        if self.ears is not None:
            raise Refusal("this screen is of both ears: say which, such as screen.of('right')")
        return self._tracks[None]

    @property
    def reference_field(self) -> "Field":
        """The reference of a screen of one ear, as a field; of a screen without a rule."""
        return self._track().reference_field

    def reference_thresholds(
        self, frequencies_hz: Sequence[float], *, ear: str | None = None
    ) -> list[Threshold]:
        """The thresholds of the reference with their intervals, as a rule's screen sees it.

        Args:
            frequencies_hz: where, in Hz.
            ear: of a screen of both ears, which.

        Returns:
            A `Threshold` for each frequency; none where there is no reference.

        Examples:
            >>> import earshift as es
            >>> screen = es.Screen(es.Audiogram({2000: 20, 3000: 30, 4000: 35}), rule="osha-sts")
            >>> [one.frequency_hz for one in screen.reference_thresholds([2000, 4000])]
            [2000.0, 4000.0]
        """
        return self._track(ear).reference_thresholds(frequencies_hz)

    @property
    def state(self) -> Any:
        """What all trials so far say, in a screen of one ear: a posterior of fields or persons."""
        return self._track().posterior

    @property
    def log_bf(self) -> float:
        """Log Bayes factor, in nats: log evidence of changed over unchanged; of one ear."""
        return self._track().log_bf

    @property
    def e_value(self) -> float | None:
        """Anytime-valid factor for change, in a screen of one ear by a protocol; else None.

        The product of M_g's over M_f's probability of every answer, each said before it came. For
        an ear that answers as the reference's field does, the chance that it ever reaches 100 is
        at most 1 %, whatever tones were chosen and whenever one stops (method.md).
        """
        return self._track().e_value

    @property
    def e_value_same(self) -> float | None:
        """The same for "unchanged", on average over changed ears; None where that does not hold.

        It holds where M_g is one model fixed before the first tone: `best`, and a protocol with
        theta_g "fixed" and rho_weights "posterior".
        """
        return self._track().e_value_same

    def p_changed_after(self, tones: int) -> float:
        """What `p_changed` was after the first tones, in a screen of one ear.

        Args:
            tones: after how many.

        Returns:
            A probability.
        """
        return self._track().p_changed_after(tones)

    @property
    def reliability(self) -> str:
        """As a verdict's, in a screen of one ear: how far the answers can be trusted."""
        return self._track().reliability

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

        Args:
            ax: matplotlib axes to draw on; by default new ones.

        Returns:
            The matplotlib axes that were drawn on.
        """
        first = {ear: track.p_changed_after(0) for ear, track in self._tracks.items()}
        trails: dict[str | None, list[tuple[int, float, bool]]] = {
            ear: [(0, p, False)] for ear, p in first.items()
        }
        for number, (trial, p) in enumerate(zip(self._trials, self._trail(), strict=True), start=1):
            ear = None if self.ears is None else trial.tone.ear
            trails[ear].append((number, p, trial.heard))
        count = "tones" if self.domain.of_tones else "trials"
        on = plots.on(ax, 5.4, 3.8)
        return plots.probability(on, trails, count, label=self._asked_words, words=self._words)

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

        The reference is grey and dashed, and the title says the decision.

        Args:
            ax: matplotlib axes to draw on; by default new ones.
            frequencies_hz: where thresholds are drawn, by default all of the domain and all tested.
            ear: of both ears, the one to draw (by default both); of one ear, which it is.

        Returns:
            The matplotlib axes that were drawn on.
        """
        drawn = super().plot(ax, frequencies_hz=frequencies_hz, ear=ear)
        tested = [ear] if ear in self._tracks else list(self._tracks)
        said = [(one, self._tracks[one]) for one in tested]
        words = [
            f"{f'{one}: ' if one else ''}{track.decision} (P = {track.p_changed:.3f})"
            for one, track in said
        ]
        drawn.set_title("\n".join(words), fontsize=10)
        return drawn

    def _lines(
        self, where: Sequence[Location], ear: str | None, shown: str | None
    ) -> list[plots.Line]:
        now = f"{shown} ear (95 % band)" if shown else "now (95 % band)"
        lines = [line_of(self.thresholds(where, ear=ear), now, shown, self._tested_at(ear))]
        before, stored = self._before(where, ear), self._reference_data[ear]
        if before and stored is not None:
            label = f"{shown} ear, reference" if shown else "reference (95 % band)"
            tested = tested_at(reference_from_dict(stored))
            lines.insert(0, line_of(before, label, shown, tested, before=True))
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
