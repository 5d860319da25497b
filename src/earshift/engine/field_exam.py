"""`FieldExam`: an exam that fits the paper's psychometric field to the answers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from earshift.engine import plots
from earshift.engine.audiogram import Audiogram
from earshift.engine.checks import check_rates, whole
from earshift.engine.clinical import (
    folded,
    level_offset_sd_db,
)
from earshift.engine.cross_hearing import INTERAURAL_DB, own_ear_only
from earshift.engine.domain import Domain, as_domain
from earshift.engine.ears import ear_of, the_other, trials_of
from earshift.engine.limits import Limits, allowed
from earshift.engine.norms import Hyperprior, hyperprior
from earshift.engine.persons.people import Earlier, Newcomer
from earshift.engine.prior import Prior
from earshift.engine.procedure import FIT, SAMPLE, Procedure, for_ear
from earshift.engine.psychometric import (
    Curves,
    Estimate,
    GoodnessOfFit,
    Psychometric,
    as_performance,
    goodness_of_fit,
    psychometric,
    rate_estimate,
)
from earshift.engine.refusal import Refusal
from earshift.engine.strategy import Strategy, name_of
from earshift.engine.thresholds import (
    SAMPLES,
    SMALLEST_SLOPE,
    Location,
    Threshold,
    frequencies_of,
    locations_of,
    named,
    positive_slope_samples,
    threshold,
    thresholds_from_samples,
)
from earshift.engine.tone import Tone, Trial
from earshift.engine.values import EARS
from earshift.engine.views import scale_of

if TYPE_CHECKING:  # a field loads its compiled kernels, which a clinical exam does not need
    from matplotlib.axes import Axes

    from earshift.engine.ensemble import Effort, Ensemble
    from earshift.engine.field import Field

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


class _Usual(int):
    """A number that stands for "as usual" where no other is given."""


USUAL_TONES = _Usual(50)  # of one ear
BOTH_EARS_TONES = 80
ESTIMATE = "estimate"  # in the place of a rate
FIELD_POINTS = 49  # of a heat map, along each axis

# Lapse rates that `lapse_rate` compares, and what it expects of them: Beta(1, 10).
LAPSES = np.linspace(0.0, 0.3, 16)
LAPSE_WEIGHTS = (1.0 - LAPSES) ** 9


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
        strategy: str | Strategy = "bald",
        halton_tones: int = 15,
        guess: float | str = 0.0,
        lapse: float | str = 0.0,
        prior: Prior | None = None,
    ) -> None:
        if prior is not None:
            if not isinstance(prior, Prior):
                raise Refusal("prior must be earshift.Prior or None", got=prior)
            domain = prior.on(as_domain(domain))
            if prior.threshold is not None:
                domain.intensity.check(prior.threshold)
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
        self.strategy = choose.as_strategy(strategy, "an exam", but="differential")
        self.halton_tones = whole(halton_tones, "halton_tones", 0)
        self.prior = prior
        self._parts: tuple[int, Ensemble] | None = None
        self._rates: tuple[int, tuple[float, float]] | None = None
        self.guess, self.lapse = _rates(guess, lapse)
        if ears is not None and self.estimated:
            raise Refusal("rates are estimated in an exam of one ear: give guess and lapse")
        self._unheard_elsewhere = own_ear_only(self.domain, other_ear, transducer)
        self._fields: tuple[int, dict[str | None, Any]] | None = None

    def _set_ear(self, ear: str | None) -> None:
        if ear not in ((None,) if self.ears is None else (None, *EARS)):
            raise Refusal("ear must be 'right', 'left' or None, and needs ears='both'", got=ear)
        self.ear = ear

    @property
    def _shown_ears(self) -> tuple[str | None, ...]:
        return self._tested if self.ear is None else (self.ear,)

    def _drop(self, trial: Trial, ear: str | None) -> None:
        super()._drop(trial, ear)
        self._fields = self._parts = self._rates = None

    @property
    def guess(self) -> float:
        """Probability of "heard" without hearing: as given, or as the answers have it so far."""
        return self._told_guess if self._told_guess is not None else self._mean_rates()[0]

    @guess.setter
    def guess(self, rate: float | None) -> None:
        self._told_guess = rate

    @property
    def lapse(self) -> float:
        """Probability of "missed" in spite of hearing: as given, or as the answers have it."""
        return self._told_lapse if self._told_lapse is not None else self._mean_rates()[1]

    @lapse.setter
    def lapse(self, rate: float | None) -> None:
        self._told_lapse = rate

    @property
    def estimated(self) -> tuple[str, ...]:
        """Which of "guess" and "lapse" are estimated from the answers."""
        told = {"guess": self._told_guess, "lapse": self._told_lapse}
        return tuple(name for name, rate in told.items() if rate is None)

    def _mean_rates(self) -> tuple[float, float]:
        """The rates as they stand, by fewer draws than a result takes."""
        count = len(self._trials)
        if self._rates is None or self._rates[0] != count:
            from earshift.engine.ensemble import BETWEEN

            guess, lapse = self._drawn(BETWEEN).mean_rates()
            # Rounded, so that the next tone does not hang on the last digits of a machine.
            self._rates = (count, (round(guess, 3), round(lapse, 3)))
        return self._rates[1]

    @property
    def hyperprior(self) -> Hyperprior:
        """What is expected of the field's hyperparameters: the user's prior, or audiograms'."""
        if self.prior is None:
            return hyperprior()
        return self.prior.in_model_units(self.domain).hyperprior()

    @property
    def _integrated(self) -> bool:
        """Whether results are averaged over hyperparameters; a tone's usual exam is not."""
        return self.prior is not None or not self.domain.of_tones or bool(self.estimated)

    @property
    def _ensemble(self) -> "Ensemble":
        """Fields at the hyperparameters and rates that the answers leave possible."""
        from earshift.engine.ensemble import RESULTS

        count = len(self._trials)
        if self._parts is None or self._parts[0] != count:
            self._parts = (count, self._drawn(RESULTS))
        return self._parts[1]

    def _drawn(self, effort: "Effort") -> "Ensemble":
        from earshift.engine import ensemble as many
        from earshift.engine.answers import answers_of
        from earshift.engine.evidence import Rates

        expected = Prior() if self.prior is None else self.prior
        own = None if self.prior is None else self.prior.in_model_units(self.domain)
        axes = len(self.domain.smooth)
        size, place = many.of_hyperprior(hyperprior(), axes) if own is None else many.of_prior(own)
        unknowns = many.Unknowns(
            size,
            place,
            Rates(self._told_guess or 0.0, self._told_lapse or 0.0),
            guess=expected.guess if "guess" in self.estimated else None,
            lapse=expected.lapse if "lapse" in self.estimated else None,
        )
        answers = answers_of(self._trials, self.domain)
        if own is None:
            begin = many.mode_of(answers, hyperprior(), unknowns)
        else:
            begin = many.mode_of_prior(answers, own, unknowns)
        return many.ensemble(answers, unknowns, begin, self._chance(SAMPLE), effort)

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
            fitted = self._fit(self.domain, self.hyperprior, self.guess, self.lapse)
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
        """This exam of both ears as that of one `ear`: the reference of a screen of that ear.

        Returns:
            A copy of the exam that speaks of this ear.

        Raises:
            Refusal: for an ear that is none, or an exam of one ear.
        """
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

        Returns:
            An array of places x levels.
        """
        from earshift.engine import choose

        outlook = choose.Outlook(
            rng=self._chance(SAMPLE),
            guess=self.guess,
            lapse=self.lapse,
            latent=self._moments,
            shape=(len(self._tested) * self.domain.shape[0], self.domain.shape[1]),
            domain=self.domain,
            trials=self._trials,
        )
        return choose.scored(self.strategy, outlook)

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
        self,
        frequencies_hz: Sequence[Location] | None = None,
        *,
        ear: str | None = None,
        performance: float = 0.5,
    ) -> list[Threshold]:
        """Thresholds in dB HL with 95 % intervals, from the posterior's samples.

        Args:
            frequencies_hz: where, in Hz, by default at the usual audiometric frequencies. On other
                axes places in their units (tuples with several smooth axes), by default all of the
                domain.
            ear: "right" or "left", of an exam of both ears.
            performance: the point on the psychometric function, guesses and lapses aside: 0.75 is
                three quarters of the way from the guess rate to 1 - lapse rate.

        Returns:
            A `Threshold` for each place; on other axes than a tone's a `PlaceThreshold`.

        Raises:
            Refusal: for places outside the domain, an ear that is none, or a performance that does
                not lie between 0 and 1.
        """
        wanted = as_performance(performance)
        spoken_of = self._spoken_of(ear)
        locations, places = locations_of(self.domain, frequencies_hz)
        levels = self._curves(locations, spoken_of).at_performance(wanted)
        found = thresholds_from_samples(locations, levels, self.domain)
        if spoken_of is None:
            return found
        _, places = frequencies_of(self.domain, [t.frequency_hz for t in found])
        crossing = self._crossing_levels(the_other(spoken_of), places)
        return [
            replace(t, cross_hearing=bool(t.level_db_hl >= level))
            for t, level in zip(found, crossing, strict=True)
        ]

    def psychometric(self, place: Location = (), *, ear: str | None = None) -> Psychometric:
        """The psychometric function at a frequency in Hz (a place, on other axes).

        Args:
            place: frequency in Hz, or a place in the units of other axes; none where there is no
                smooth axis, and so only one function.
            ear: "right" or "left", of an exam of both ears.

        Returns:
            Threshold, slope, width, guess and lapse rate, each with its 95 % interval, and the
            answers that were given there. Rates are estimated where the exam was asked to
            (`lapse="estimate"`); see also `lapse_rate`.

        Raises:
            Refusal: for a place outside the domain or an ear that is none.
        """
        spoken_of = self._spoken_of(ear)
        locations, _ = locations_of(self.domain, [place])
        domain = self.domain
        told = [
            (getattr(trial.tone, domain.intensity.name), trial.heard)
            for trial in trials_of(self._trials, spoken_of)
            if all(
                abs(getattr(trial.tone, axis.name) - value) <= 1e-6 * abs(value)
                for axis, value in zip(domain.smooth, locations[0], strict=True)
            )
        ]
        curves = self._curves(locations, spoken_of)
        return psychometric(curves, domain.intensity, named(locations[0], domain), told, spoken_of)

    def plot_field(self, ax: "Axes | None" = None, *, ear: str | None = None) -> "Axes":
        """Draw P(heard) over frequency and level as a heat map, with the tones; gives the axes.

        The white line is the threshold: half of the way from the guess rate to 1 - lapse rate.
        With a guess rate of a choice among alternatives, P(correct) is drawn.

        Args:
            ax: matplotlib axes to draw on; by default new ones.
            ear: "right" or "left", of an exam of both ears.

        Returns:
            The matplotlib axes that were drawn on.

        Raises:
            Refusal: of a domain without exactly one smooth axis.
        """
        spoken_of = self._spoken_of(ear)
        domain = self.domain
        if len(domain.smooth) != 1:
            raise Refusal(
                f"a heat map has one smooth axis, this domain has {len(domain.smooth)}",
                advice="psychometric(place).plot() shows one place of it",
            )
        place, level = domain.smooth[0], domain.intensity
        across, up = (
            np.linspace(axis.model_values[0], axis.model_values[-1], FIELD_POINTS)
            for axis in (place, level)
        )
        where = [min(max(place.from_model(float(x)), place.values[0]), place.values[-1])
                 for x in across]  # fmt: skip
        curves = self._curves([(x,) for x in where], spoken_of)
        p = np.array([curves.p_heard(up, k).mean(axis=0) for k in range(len(where))])
        return plots.field(
            plots.on(ax, 5.4, 6.0),
            where,
            [level.from_model(float(y)) for y in up],
            p,
            self._drawn_answers((spoken_of,)),
            place=scale_of(place),
            level=scale_of(level),
            threshold_p=plots.half_way(float(curves.guess.mean()), float(curves.lapse.mean())),
            words=self._words,
            of_tones=domain.of_tones,
        )

    def lapse_rate(self) -> Estimate:
        """Probability of "missed" in spite of hearing, from all answers.

        The answers are fitted anew with each of several rates, which are weighed by their evidence
        and by a prior that expects small ones, Beta(1, 10).

        Returns:
            An `Estimate`: its mean and 95 % interval.

        Raises:
            Refusal: where nothing has been answered yet.
        """
        if not self._trials:
            raise Refusal("there are no answers yet that could tell a lapse rate")
        if "lapse" in self.estimated:
            parts = self._ensemble
            return rate_estimate(np.array([field.lapse for field in parts.fields]), parts.weights)
        prior = self.hyperprior
        logs = np.array([self._evidence(float(lapse), prior) for lapse in LAPSES])
        return rate_estimate(LAPSES, LAPSE_WEIGHTS * np.exp(logs - logs.max()))

    def _evidence(self, lapse: float, prior: Hyperprior) -> float:
        return next(iter(self._fit(self.domain, prior, self.guess, lapse).values())).log_evidence

    def goodness_of_fit(self, *, ear: str | None = None) -> GoodnessOfFit:
        """Whether answers like these are to be expected: their deviance beside simulated ones'.

        Args:
            ear: "right" or "left", of an exam of both ears.

        Returns:
            The deviance, that of answers simulated from the posterior, and `p`: in how many draws
            of the posterior simulated answers deviate at least as much as the real ones.

        Raises:
            Refusal: where nothing has been answered yet.
        """
        spoken_of = self._spoken_of(ear)
        trials = trials_of(self._trials, spoken_of)
        heard = np.array([trial.heard for trial in trials], dtype=bool)
        places = [tuple(getattr(t.tone, axis.name) for axis in self.domain.smooth) for t in trials]
        distinct = sorted(set(places))
        curves = self._curves(distinct or locations_of(self.domain, None)[0][:1], spoken_of)
        p = np.empty((curves.guess.size, heard.size))
        for column, (trial, place) in enumerate(zip(trials, places, strict=True)):
            level = np.array([self.domain.intensity_of(trial.tone)])
            p[:, column] = curves.p_heard(level, distinct.index(place))[:, 0]
        _, groups = np.unique([str(trial.tone) for trial in trials], return_inverse=True)
        rng = self._chance(FIT)
        attentive = self._attentive(p.shape, rng)
        return goodness_of_fit(p, attentive, curves.guess, heard, groups, rng)

    def _attentive(self, shape: tuple[int, int], rng: np.random.Generator) -> Mask:
        """Who attends to which tone, in simulated answers: (draws, tones)."""
        return np.ones(shape, dtype=bool)

    def _curves(self, locations: list[tuple[float, ...]], ear: str | None) -> Curves:
        """Samples of an ear's psychometric functions there."""
        places = [[a.to_model(v) for a, v in zip(self.domain.smooth, location, strict=True)]
                  for location in locations]  # fmt: skip
        if self._integrated:
            where = np.array(places, dtype=float).reshape(len(locations), len(self.domain.smooth))
            return self._ensemble.curves(where, SAMPLES, self._chance(FIT))
        mean, cov = self.fields[ear].latent(np.array(places))
        draws = positive_slope_samples(mean, cov, [0], SAMPLES, self._chance(SAMPLE))
        slope = draws[:, :1]
        rates = (np.full(SAMPLES, rate) for rate in (self.guess, self.lapse))
        return Curves(threshold(slope, draws[:, 1:]), 1.0 / slope, *rates)

    def _design(self) -> dict[str, Any]:
        design = {
            **super()._design(),
            "strategy": name_of(self.strategy),
            "halton_tones": self.halton_tones,
            "guess": ESTIMATE if self._told_guess is None else self._told_guess,
            "lapse": ESTIMATE if self._told_lapse is None else self._told_lapse,
        }
        if self.prior is not None:
            design["prior"] = self.prior.to_dict()
        return design if self.ears is None else {**design, "ears": self.ears, "ear": self.ear}

    def _take_silence(self, data: Mapping[str, Any]) -> None:
        """A field takes no note of answers to silence."""

    @classmethod
    def _from_design(cls, design: dict[str, Any]) -> Self:
        if design.get("prior") is not None:
            design["prior"] = Prior.from_dict(design["prior"])
        return cls(**design)


def _rates(guess: Any, lapse: Any) -> tuple[float | None, float | None]:
    """Guess and lapse rate, None where they are to be estimated."""
    check_rates(*(0.0 if rate == ESTIMATE else rate for rate in (guess, lapse)))
    told = [None if rate == ESTIMATE else float(rate) for rate in (guess, lapse)]
    return told[0], told[1]
