"""`FieldExam`: an exam that fits the paper's psychometric field to the answers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from earshift.engine.audiogram import Audiogram
from earshift.engine.checks import check_rates, whole
from earshift.engine.clinical import (
    folded,
    level_offset_sd_db,
)
from earshift.engine.cross_hearing import INTERAURAL_DB, own_ear_only
from earshift.engine.domain import Domain
from earshift.engine.ears import ear_of, the_other, trials_of
from earshift.engine.limits import Limits, allowed
from earshift.engine.norms import Hyperprior, hyperprior
from earshift.engine.persons.people import Earlier, Newcomer
from earshift.engine.procedure import SAMPLE, Procedure, for_ear
from earshift.engine.refusal import Refusal
from earshift.engine.thresholds import (
    SAMPLES,
    SMALLEST_SLOPE,
    Location,
    Threshold,
    frequencies_of,
    locations_of,
    positive_slope_samples,
    threshold,
    thresholds_from_samples,
)
from earshift.engine.tone import Tone, Trial
from earshift.engine.values import EARS

if TYPE_CHECKING:  # a field loads its compiled kernels, which a clinical exam does not need
    from earshift.engine.field import Field

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


class _Usual(int):
    """A number that stands for "as usual" where no other is given."""


USUAL_TONES = _Usual(50)  # of one ear
BOTH_EARS_TONES = 80


def tones_or_usual(max_tones: int, ears: str | None) -> int:
    """The number given, or the usual one: 50 tones, and 80 of both ears."""
    return BOTH_EARS_TONES if max_tones is USUAL_TONES and ears is not None else max_tones


class FieldExam(Procedure):
    """An exam that fits the field of one ear or of both; see `exam.Exam` for its parameters."""

    kind = "exam"

    def __init__(
        self,
        *,
        ears: str | None = None,
        ear: str | None = None,
        seed: int = 0,
        max_tones: int = USUAL_TONES,
        domain: str | Domain = "fine",
        limits: Limits | None = None,
        other_ear: Audiogram | None = None,
        transducer: str = "unknown",
        strategy: str = "bald",
        halton_tones: int = 15,
        guess: float = 0.0,
        lapse: float = 0.0,
    ) -> None:
        super().__init__(
            ears=ears,
            seed=seed,
            max_tones=tones_or_usual(max_tones, ears),
            domain=domain,
            limits=limits,
            other_ear=other_ear,
            transducer=transducer,
        )
        from earshift.engine import choose  # with compiled kernels: loaded where needed

        self._set_ear(ear)
        known = [name for name in choose.STRATEGIES if name != "differential"]
        if strategy not in known:
            raise Refusal(f"strategy of an exam must be one of {', '.join(known)}", got=strategy)
        check_rates(guess, lapse)
        self.strategy = strategy
        self.halton_tones = whole(halton_tones, "halton_tones", 0)
        self.guess, self.lapse = float(guess), float(lapse)
        self._unheard_elsewhere = own_ear_only(self.domain, other_ear, transducer)
        self._fields: tuple[int, dict[str | None, Any]] | None = None

    def _set_ear(self, ear: str | None) -> None:
        if ear not in ((None,) if self.ears is None else (None, *EARS)):
            raise Refusal("ear must be 'right', 'left' or None, and needs ears='both'", got=ear)
        self.ear = ear

    @property
    def done(self) -> bool:
        """Advice: enough tones. Asking and telling go on working."""
        return len(self._trials) >= self.max_tones

    @property
    def field(self) -> "Field":
        """The psychometric field fitted to all trials so far; of both ears, that of `ear`."""
        return self.fields[self._spoken_of(None)]

    @property
    def fields(self) -> "dict[str | None, Field]":
        """The field of each tested ear by its name (None where only one is tested)."""
        count = len(self._trials)
        if self._fields is None or self._fields[0] != count:
            fitted = self._fit(self.domain, hyperprior(), self.guess, self.lapse)
            self._fields = (count, fitted)
        return self._fields[1]

    def _fit(
        self, domain: Domain, prior: Hyperprior, guess: float, lapse: float
    ) -> "dict[str | None, Field]":
        from earshift.engine.answers import answers_of
        from earshift.engine.both_ears import answers_of_both, fit_ears
        from earshift.engine.field import fit

        if self.ears is None:
            return {None: fit(answers_of(self._trials, domain), prior, guess, lapse)}
        both = fit_ears(answers_of_both(self._trials, domain), prior, guess, lapse)
        return dict(both.items())

    def _spoken_of(self, ear: str | None) -> str | None:
        """The tested ear that is meant: the given one, or the exam's own."""
        if self.ears is None:
            if ear is not None:
                raise Refusal(f"this exam is of one ear: leave out ear={ear!r}")
            return None
        ear = self.ear if ear is None else ear
        if ear not in EARS:
            raise Refusal("this exam is of both ears: say ear='right' or 'left'", got=ear)
        return ear

    def of(self, ear: str) -> Self:
        """This exam of both ears as the exam of one: the reference of a screen of that ear."""
        one = self.fork()
        one.ear = self._spoken_of(ear)
        return one

    def refitted(self, domain: Domain, prior: Hyperprior, guess: float, lapse: float) -> "Field":
        """The field of these trials as a screen sees it: its domain, prior and listener."""
        return self._fit(domain, prior, guess, lapse)[self._with_trials()]

    def earlier(self, nodes_hz: tuple[float, ...]) -> Earlier:
        """What these trials say of the ear at the nodes: the past of a person seen again."""
        ear = self._with_trials()
        found = self._folded(nodes_hz)
        return found if ear is None else found.of(EARS.index(ear))

    def _folded(self, nodes_hz: tuple[float, ...]) -> Earlier:
        prior = Newcomer(nodes_hz, len(self._tested), offset_sd_db=level_offset_sd_db(self.domain))
        return folded(prior, self._trials, (), 0, self.seed, nodes_hz)

    def _with_trials(self) -> str | None:
        """The ear that is spoken of, or a refusal where it has no trials."""
        ear = self._spoken_of(None)
        if not trials_of(self._trials, ear):
            whose = "" if ear is None else f" of the {ear} ear"
            raise Refusal(
                f"the reference exam has no trials{whose}: run it first, or give an audiogram or "
                "a norm"
            )
        return ear

    def scores(self) -> Array:
        """Score of every candidate (places x levels of the domain) by the strategy, now.

        Where both ears are tested, the right ear's places x levels, then the left one's.
        """
        from earshift.engine import choose

        outlook = choose.Outlook(
            rng=self._chance(SAMPLE),
            guess=self.guess,
            lapse=self.lapse,
            latent=self._moments,
            shape=(len(self._tested) * self.domain.shape[0], self.domain.shape[1]),
        )
        return choose.STRATEGIES[self.strategy](outlook)

    def _moments(self) -> tuple[Array, Array]:
        """Mean and variance of the latent of every candidate."""
        places, intensities = self.domain.places, self.domain.intensities
        each = [self.fields[ear].moments(places, intensities) for ear in self._tested]
        return np.vstack([mean for mean, _ in each]), np.vstack([var for _, var in each])

    def _playable_in(self, ear: str | None) -> Mask:
        mask = allowed(self.limits, self.domain, trials_of(self._trials, ear))
        if ear is None:
            return mask & self._unheard_elsewhere
        crossing = self._crossing_levels(the_other(ear), self.domain.places)
        return np.asarray(mask & (np.array(self.domain.intensity.values) < crossing[:, None]))

    def _crossing_levels(self, listening: str, places: Array) -> Array:
        """Levels from which this ear, by all that is known now, hears what the other is played.

        Infinite before the exam knows that loudness helps: there is no threshold then. A threshold
        below the softest candidate counts as there, so that something is left to play.
        """
        mean, _ = self.fields[listening].latent(places)
        if mean[0] < SMALLEST_SLOPE:
            return np.full(places.shape[0], np.inf)
        axis = self.domain.intensity
        levels = [axis.from_model(float(t)) for t in threshold(float(mean[0]), mean[1:])]
        return np.asarray(np.maximum(levels, axis.values[0]) + INTERAURAL_DB[self.transducer])

    def _choose(self) -> Tone:
        count = len(self._trials)
        if count < self.halton_tones:
            # One sequence for both ears in turn, so that what one leaves out the other fills.
            ear = self._tested[count % len(self._tested)]
            mask = self._playable_in(ear)
            if mask.any():
                from earshift.engine import choose

                return for_ear(choose.halton_tone(self.seed, count, self.domain, mask), ear)
        return super()._choose()

    @property
    def cross_heard(self) -> tuple[Trial, ...]:
        """The trials whose tone the other ear might have heard, by all that is known now.

        Of an exam of both ears; one of a single ear knows nothing of the other.
        """
        if self.ears is None:
            return ()
        out = []
        for trial in self._trials:
            place = np.array([self.domain.place_of(trial.tone)])
            crossing = self._crossing_levels(the_other(ear_of(trial.tone)), place)[0]
            if trial.tone.level_db_hl >= crossing:
                out.append(trial)
        return tuple(out)

    def thresholds(
        self, frequencies_hz: Sequence[Location] | None = None, *, ear: str | None = None
    ) -> list[Threshold]:
        """Thresholds in dB HL with 95 % intervals, from the field's samples with rising slope.

        On other axes than a tone's the places are numbers (tuples of them with several smooth
        axes), all of the domain's by default, and each result is a `PlaceThreshold`. `ear` is for
        an exam of both ears, which has two fields.
        """
        spoken_of = self._spoken_of(ear)
        locations, places = locations_of(self.domain, frequencies_hz)
        levels = self._threshold_draws(locations, spoken_of)
        found = thresholds_from_samples(locations, levels, self.domain)
        if spoken_of is None:
            return found
        _, places = frequencies_of(self.domain, [t.frequency_hz for t in found])
        crossing = self._crossing_levels(the_other(spoken_of), places)
        return [
            replace(t, cross_hearing=bool(t.level_db_hl >= level))
            for t, level in zip(found, crossing, strict=True)
        ]

    def _threshold_draws(self, locations: list[tuple[float, ...]], ear: str | None) -> Array:
        """Samples of an ear's thresholds there, in model units: (samples, places)."""
        places = [[a.to_model(v) for a, v in zip(self.domain.smooth, location, strict=True)]
                  for location in locations]  # fmt: skip
        mean, cov = self.fields[ear].latent(np.array(places))
        draws = positive_slope_samples(mean, cov, [0], SAMPLES, self._chance(SAMPLE))
        return threshold(draws[:, :1], draws[:, 1:])

    def _design(self) -> dict[str, Any]:
        design = {
            **super()._design(),
            "strategy": self.strategy,
            "halton_tones": self.halton_tones,
            "guess": self.guess,
            "lapse": self.lapse,
        }
        return design if self.ears is None else {**design, "ears": self.ears, "ear": self.ear}

    def _take_silence(self, data: Mapping[str, Any]) -> None:
        """A field takes no note of answers to silence."""

    @classmethod
    def _from_design(cls, design: dict[str, Any]) -> Self:
        return cls(**design)
