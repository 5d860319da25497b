"""Exams that ask tones and take answers: `Exam` measures a field, `Screen` decides on change.

Both are folds over their trials: design + trials rebuild every state, a fit never starts from an
earlier one, and chance comes from (seed, number of trials) alone. So asking twice gives the same
tone, and an exam read back from a file asks what the unbroken one would have asked.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from earshift import choose, ep, field
from earshift.change import Hypothesis, Protocol, as_protocol, conjoint, same
from earshift.field import Answers, Field, Threshold
from earshift.norms import Norm, hyperprior
from earshift.stimulus import (
    Audiogram,
    Axis,
    Domain,
    Limits,
    Stimulus,
    Tone,
    Trial,
    allowed,
    as_domain,
    as_heard,
    whole,
)

Array = NDArray[np.float64]

SCHEMA = 1  # of to_dict
SAMPLES = 4000  # for thresholds and shifts
AUDIOMETRIC_HZ = (500.0, 1000.0, 2000.0, 3000.0, 4000.0, 6000.0, 8000.0)

# Separate streams of chance for separate purposes, so that none depends on whether another ran.
_PICK, _SAMPLE, _HALTON = 1, 2, 3


class _Sitting:
    """What every exam has: a design, trials, and one tone to ask next."""

    kind: ClassVar[str]

    def __init__(
        self, *, seed: int, max_tones: int, domain: str | Domain, limits: Limits | None
    ) -> None:
        self.seed = whole(seed, "seed", 0)
        self.max_tones = whole(max_tones, "max_tones", 1)
        self.domain = as_domain(domain)
        if limits is not None and not isinstance(limits, Limits):
            raise ValueError(f"limits must be earshift.Limits or None, got {limits!r}")
        self.limits = limits
        allowed(limits, self.domain, ())  # refuses limits that leave nothing to play
        self._trials: tuple[Trial, ...] = ()
        self._next: tuple[int, Tone] | None = None

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All tones told so far, with their answers, in order."""
        return self._trials

    def tell(self, tone: Tone | Stimulus, heard: object) -> None:
        """Take the answer to a tone, asked for or not. Bad input changes nothing."""
        self._trials = (*self._trials, Trial(self.domain.check(tone), as_heard(heard)))

    def ask(self) -> Tone:
        """The tone to play next. Asking again gives the same tone until an answer is told.

        On a domain with other axes than a tone's it is a `Stimulus` with these axes' names.
        """
        count = len(self._trials)
        if self._next is None or self._next[0] != count:
            self._next = (count, self._choose())
        return self._next[1]

    def scores(self) -> Array:
        """Score of every candidate (places x levels of the domain) by the strategy, now."""
        raise NotImplementedError

    def _choose(self) -> Tone:
        mask = allowed(self.limits, self.domain, self._trials)
        place, level = choose.pick(self.scores(), mask, self._rng(_PICK))
        return self.domain.tone(place, level)

    def _rng(self, purpose: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, len(self._trials), purpose))

    @property
    def _answers(self) -> Answers:
        return answers_of(self._trials, self.domain)

    def _frequencies(self, wanted: Sequence[float] | None) -> tuple[Array, Array]:
        """Frequencies in Hz and as places; by default the audiometric ones that are in range."""
        if not self.domain.of_tones:
            raise ValueError("thresholds in dB HL need a domain of tones; use `field` for others")
        axis = self.domain.smooth[0]
        if wanted is None:
            low, high = axis.values[0], axis.values[-1]
            wanted = [f for f in AUDIOMETRIC_HZ if low <= f <= high]
        checked = [axis.check(Tone(f, 0.0).frequency_hz) for f in wanted]
        if not checked:
            raise ValueError("thresholds need at least one frequency")
        return np.array(checked), np.array([[axis.to_model(f)] for f in checked])

    def _design(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "max_tones": self.max_tones,
            "domain": self.domain.to_dict(),
            "limits": None if self.limits is None else self.limits.to_dict(),
        }

    def to_dict(self) -> dict[str, Any]:
        """Design and trials as plain JSON data: all that is needed to go on elsewhere."""
        return {
            "kind": self.kind,
            "schema": SCHEMA,
            "design": self._design(),
            "trials": [trial.to_dict() for trial in self._trials],
        }

    @classmethod
    def _from_design(cls, design: dict[str, Any]) -> Self:
        raise NotImplementedError

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild an exam from `to_dict`'s data; it asks the same next tone."""
        try:
            if data["kind"] != cls.kind or data["schema"] != SCHEMA:
                raise ValueError(
                    f"expected a {cls.kind} of schema {SCHEMA}, "
                    f"got a {data['kind']!r} of schema {data['schema']!r}"
                )
            design = dict(data["design"])
            _ = design["seed"], design["max_tones"]  # a default here would ask other tones
            design["domain"] = Domain.from_dict(design["domain"])
            design["limits"] = None if design["limits"] is None else Limits(**design["limits"])
            sitting = cls._from_design(design)
            trials = [Trial.from_dict(row) for row in data["trials"]]
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not the data of an earshift {cls.kind}: {error!r}") from None
        for trial in trials:
            sitting.tell(trial.tone, trial.heard)
        return sitting


def answers_of(trials: Sequence[Trial], domain: Domain) -> Answers:
    """Trials in model units."""
    return Answers.of(
        places=[domain.place_of(trial.tone) for trial in trials],
        intensities=[domain.intensity_of(trial.tone) for trial in trials],
        answers=[ep.HEARD if trial.heard else ep.MISSED for trial in trials],
        axes=len(domain.smooth),
    )


def halton_tone(seed: int, number: int, domain: Domain, mask: NDArray[np.bool_]) -> Tone:
    """Point `number` of the seed's scrambled Halton sequence, snapped to the allowed candidates."""
    from scipy.stats import qmc  # slow to import, and only needed here

    engine = qmc.Halton(
        d=len(domain.smooth) + 1, scramble=True, rng=np.random.default_rng((seed, _HALTON))
    )
    engine.fast_forward(number)
    point = engine.random(1)[0]
    axes: list[Axis] = [*domain.smooth, domain.intensity]
    low = np.array([axis.model_values[0] for axis in axes])
    high = np.array([axis.model_values[-1] for axis in axes])
    target = low + point * (high - low)
    span = np.where(high > low, high - low, 1.0)
    playable = mask.any(axis=1)
    away = (((domain.places - target[:-1]) / span[:-1]) ** 2).sum(axis=1)
    place = int(np.where(playable, away, np.inf).argmin())
    level = int(np.where(mask[place], np.abs(domain.intensities - target[-1]), np.inf).argmin())
    return domain.tone(place, level)


class Exam(_Sitting):
    """A first exam: Halton tones to look around, then the most informative tone, and again.

    >>> exam = Exam(seed=1)
    >>> while not exam.done:
    ...     tone = exam.ask()
    ...     exam.tell(tone, heard=listener(tone))
    >>> exam.thresholds([500, 1000, 2000, 4000])
    """

    kind = "exam"

    def __init__(
        self,
        *,
        seed: int = 0,
        max_tones: int = 50,
        domain: str | Domain = "fine",
        limits: Limits | None = None,
        strategy: str = "bald",
        halton_tones: int = 15,
        guess: float = 0.0,
        lapse: float = 0.0,
    ) -> None:
        super().__init__(seed=seed, max_tones=max_tones, domain=domain, limits=limits)
        known = [name for name in choose.STRATEGIES if name != "differential"]
        if strategy not in known:
            raise ValueError(
                f"strategy of an exam must be one of {', '.join(known)}, got {strategy!r}"
            )
        ep.check_rates(guess, lapse)
        self.strategy = strategy
        self.halton_tones = whole(halton_tones, "halton_tones", 0)
        self.guess, self.lapse = float(guess), float(lapse)
        self._fitted: tuple[int, Field] | None = None

    @property
    def done(self) -> bool:
        """Advice: enough tones. Asking and telling go on working."""
        return len(self._trials) >= self.max_tones

    @property
    def field(self) -> Field:
        """The psychometric field fitted to all trials so far."""
        count = len(self._trials)
        if self._fitted is None or self._fitted[0] != count:
            fitted = field.fit(self._answers, hyperprior(), self.guess, self.lapse)
            self._fitted = (count, fitted)
        return self._fitted[1]

    def scores(self) -> Array:
        outlook = choose.Outlook(
            rng=self._rng(_SAMPLE),
            guess=self.guess,
            lapse=self.lapse,
            latent=lambda: self.field.moments(self.domain.places, self.domain.intensities),
            shape=self.domain.shape,
        )
        return choose.STRATEGIES[self.strategy](outlook)

    def _choose(self) -> Tone:
        count = len(self._trials)
        if count < self.halton_tones:
            mask = allowed(self.limits, self.domain, self._trials)
            return halton_tone(self.seed, count, self.domain, mask)
        return super()._choose()

    def thresholds(self, frequencies_hz: Sequence[float] | None = None) -> list[Threshold]:
        """Thresholds in dB HL with 95 % intervals, from the field's samples with rising slope."""
        frequencies, places = self._frequencies(frequencies_hz)
        mean, cov = self.field.latent(places)
        draws = field.positive_slope_samples(mean, cov, [0], SAMPLES, self._rng(_SAMPLE))
        levels = -draws[:, 1:] / draws[:, :1]
        return thresholds_from_samples(frequencies, levels, self.domain)

    def _design(self) -> dict[str, Any]:
        return {
            **super()._design(),
            "strategy": self.strategy,
            "halton_tones": self.halton_tones,
            "guess": self.guess,
            "lapse": self.lapse,
        }

    @classmethod
    def _from_design(cls, design: dict[str, Any]) -> Self:
        return cls(**design)


def thresholds_from_samples(frequencies: Array, levels: Array, domain: Domain) -> list[Threshold]:
    """Median and 95 % interval of sampled thresholds (model units), cut to the domain."""
    axis = domain.intensity
    low_edge, high_edge = axis.values[0], axis.values[-1]
    out = []
    for k, frequency in enumerate(frequencies):
        middle, low, high = (
            axis.from_model(float(q)) for q in np.quantile(levels[:, k], (0.5, 0.025, 0.975))
        )
        censored = "below" if middle < low_edge else "above" if middle > high_edge else None
        cut = [min(max(v, low_edge), high_edge) for v in (middle, low, high)]
        out.append(Threshold(float(frequency), cut[0], cut[1], cut[2], censored))
    return out


@dataclass(frozen=True)
class Shift:
    """Change of one threshold in dB, worse is positive, if the ear is a changed one.

    Median and 95 % interval under the hypothesis that allows a change. `censored` says that the old
    or the new threshold lies outside the domain's levels, so that the size is a guess.
    """

    frequency_hz: float
    shift_db: float
    low_db: float
    high_db: float
    censored: bool


@dataclass(frozen=True)
class Verdict:
    """What a screen says now."""

    decision: str  # changed, unchanged or inconclusive
    p_changed: float
    log_bf: float  # log evidence of different over same
    tones: int
    shifts: tuple[Shift, ...]
    converged: bool
    protocol: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        words = {
            "changed": "Hearing has changed from the reference",
            "unchanged": "No change from the reference",
            "inconclusive": "Not decided yet",
        }[self.decision]
        doubt = "" if self.converged else " The numerical fit did not settle: treat with care."
        return (
            f"{words}: probability of change {self.p_changed:.1%} "
            f"after {self.tones} tone{'s' if self.tones != 1 else ''}.{doubt}"
        )


Reference = Exam | Audiogram | Norm
_REFERENCES: dict[str, type[Exam] | type[Audiogram] | type[Norm]] = {
    "exam": Exam,
    "audiogram": Audiogram,
    "norm": Norm,
}


class Screen(_Sitting):
    """Has this ear changed from its reference? Asks the tones that answer just that.

    >>> screen = Screen(reference=first)
    >>> while not screen.done:
    ...     tone = screen.ask()
    ...     screen.tell(tone, heard=listener(tone))
    >>> print(screen.verdict())
    """

    kind = "screen"

    def __init__(
        self,
        reference: Reference,
        protocol: str | Protocol = "best",
        *,
        seed: int = 0,
        max_tones: int | None = None,
        domain: str | Domain | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.protocol = as_protocol(protocol)
        if self.protocol.strategy not in choose.STRATEGIES:
            raise ValueError(
                f"strategy must be one of {', '.join(choose.STRATEGIES)}, "
                f"got {self.protocol.strategy!r}"
            )
        if domain is None:
            domain = reference.domain if isinstance(reference, Exam) else "fine"
        super().__init__(
            seed=seed,
            max_tones=self.protocol.max_tones if max_tones is None else max_tones,
            domain=domain,
            limits=limits,
        )
        # Kept as data: what happens to the reference exam later is no concern of this screen.
        self._reference_data = _reference_to_dict(reference)
        self.reference_field = _reference_field(reference, self.domain, self.protocol)
        self._prior = hyperprior(
            sloped=self.reference_field.slope_mean > 0, reading_sd_db=self.protocol.reading_sd_db
        )
        self._assessed: list[_Assessment] = []

    @property
    def _state(self) -> "_Assessment":
        """Both hypotheses after all trials, and the evidence of change."""
        count = len(self._trials)
        done = self._assessed
        if self.protocol.evidence == "running":
            # A product of one-step predictions: every step has to be taken, in order.
            while len(done) <= count:
                done.append(self._assess(len(done), done[-1] if done else None))
        elif not done or done[-1].count != count:
            done.append(self._assess(count, None))
        return done[-1]

    def _assess(self, count: int, before: "_Assessment | None") -> "_Assessment":
        trials = self._trials[:count]
        answers = answers_of(trials, self.domain)
        unchanged = same(self.reference_field, answers)
        different = conjoint(self.reference_field, answers, self.protocol, self._prior)
        if self.protocol.evidence == "running":
            log_different = 0.0
            if before is not None:
                last = trials[-1]
                p = before.different.p_heard(
                    np.array([self.domain.place_of(last.tone)]),
                    np.array([self.domain.intensity_of(last.tone)]),
                )[0, 0]
                log_different = before.log_different + math.log(
                    max(p if last.heard else 1.0 - p, 1e-300)
                )
        else:
            log_different = different.log_evidence
        return _Assessment(count, unchanged, different, log_different)

    @property
    def log_bf(self) -> float:
        """Log Bayes factor: log evidence of different over same."""
        state = self._state
        if not (state.unchanged.converged and math.isfinite(state.log_different)):
            return 0.0  # no fixed point, no evidence; the verdict says that it did not converge
        return state.log_different - state.unchanged.log_evidence

    @property
    def p_changed(self) -> float:
        """Posterior probability of the hypothesis that the ear is a different one."""
        prior = self.protocol.prior_changed
        log_odds = self.log_bf + math.log(prior / (1.0 - prior))
        if log_odds > 0:
            return 1.0 / (1.0 + math.exp(-log_odds))
        odds = math.exp(log_odds)
        return odds / (1.0 + odds)

    @property
    def decision(self) -> str:
        """changed, unchanged or inconclusive, by the Bayes factor now."""
        limit = math.log(self.protocol.bayes_factor)
        log_bf = self.log_bf
        if log_bf >= limit:
            return "changed"
        return "unchanged" if log_bf <= -limit else "inconclusive"

    @property
    def done(self) -> bool:
        """Advice: decided, or enough tones. Asking and telling go on working."""
        return len(self._trials) >= self.max_tones or self.decision != "inconclusive"

    def scores(self) -> Array:
        domain, state = self.domain, self._state
        strategy = self.protocol.strategy
        wants_hypotheses = strategy in ("differential", "uncertainty")
        places, intensities = domain.places, domain.intensities
        outlook = choose.Outlook(
            rng=self._rng(_SAMPLE),
            guess=self.protocol.guess,
            lapse=self.protocol.lapse,
            latent=self._own_moments,
            shape=domain.shape,
            p_same=state.unchanged.p_heard(places, intensities) if wants_hypotheses else None,
            p_different=state.different.p_heard(places, intensities) if wants_hypotheses else None,
            p_changed=self.p_changed,
        )
        return choose.STRATEGIES[strategy](outlook)

    def _own_moments(self) -> tuple[Array, Array]:
        """The field of the new exam alone, as if there were no reference."""
        alone = field.fit(self._answers, self._prior, self.protocol.guess, self.protocol.lapse)
        return alone.moments(self.domain.places, self.domain.intensities)

    def verdict(self, frequencies_hz: Sequence[float] | None = None) -> Verdict:
        """What the screen says now, with the shift in dB at each frequency."""
        state = self._state
        return Verdict(
            decision=self.decision,
            p_changed=self.p_changed,
            log_bf=self.log_bf,
            tones=len(self._trials),
            shifts=self._shifts(frequencies_hz) if self.domain.of_tones else (),
            converged=self.reference_field.converged
            and state.unchanged.converged
            and state.different.converged,
            protocol=self.protocol.name,
        )

    def thresholds(self, frequencies_hz: Sequence[float] | None = None) -> list[Threshold]:
        """The ear's thresholds now, both hypotheses weighed by their probability."""
        frequencies, places = self._frequencies(frequencies_hz)
        rng, state = self._rng(_SAMPLE), self._state
        changed = int(rng.binomial(SAMPLES, self.p_changed))
        parts = [
            self._before_and_after(hypothesis, places, count, rng)[1]
            for hypothesis, count in (
                (state.different, changed),
                (state.unchanged, SAMPLES - changed),
            )
            if count
        ]
        return thresholds_from_samples(frequencies, np.concatenate(parts), self.domain)

    def _shifts(self, frequencies_hz: Sequence[float] | None) -> tuple[Shift, ...]:
        frequencies, places = self._frequencies(frequencies_hz)
        before, after = self._before_and_after(
            self._state.different, places, SAMPLES, self._rng(_SAMPLE)
        )
        axis = self.domain.intensity
        low, high = axis.model_values[0], axis.model_values[-1]
        # A threshold outside the domain is only known to be outside: cut, then compare.
        change = (np.clip(after, low, high) - np.clip(before, low, high)) * axis.scale
        middle, lower, upper = np.quantile(change, (0.5, 0.025, 0.975), axis=0)
        outside = np.zeros(frequencies.size, dtype=bool)
        for levels in (before, after):
            typical = np.median(levels, axis=0)
            outside |= (typical < low) | (typical > high)
        return tuple(
            Shift(float(f), float(middle[k]), float(lower[k]), float(upper[k]), bool(outside[k]))
            for k, f in enumerate(frequencies)
        )

    def _before_and_after(
        self, hypothesis: Hypothesis, places: Array, count: int, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Samples of the old and the new thresholds together, in model units."""
        shares = rng.multinomial(count, hypothesis.weights / hypothesis.weights.sum())
        d = places.shape[0] + 1
        old, new = [], []
        for component in np.nonzero(shares)[0]:
            mean, cov = hypothesis.latent_pair(int(component), places)
            draws = field.positive_slope_samples(mean, cov, [0, d], int(shares[component]), rng)
            old.append(-draws[:, 1:d] / draws[:, :1])
            new.append(-draws[:, d + 1 :] / draws[:, d : d + 1])
        return np.concatenate(old), np.concatenate(new)

    def _design(self) -> dict[str, Any]:
        return {
            **super()._design(),
            "protocol": self.protocol.to_dict(),
            "reference": self._reference_data,
        }

    @classmethod
    def _from_design(cls, design: dict[str, Any]) -> Self:
        data = design.pop("reference")
        reference = _REFERENCES[data["kind"]].from_dict(data["data"])
        return cls(reference, as_protocol(design.pop("protocol")), **design)


@dataclass(frozen=True)
class _Assessment:
    count: int
    unchanged: Hypothesis
    different: Hypothesis
    log_different: float


def _reference_to_dict(reference: Reference) -> dict[str, Any]:
    for kind, known in _REFERENCES.items():
        if isinstance(reference, known):
            return {"kind": kind, "data": reference.to_dict()}
    raise ValueError(
        f"reference must be an earshift Exam, Audiogram or Norm, got {type(reference).__name__}"
    )


def _reference_field(reference: Reference, domain: Domain, protocol: Protocol) -> Field:
    if isinstance(reference, Exam):
        if not reference.trials:
            raise ValueError(
                "the reference exam has no trials: run it first, or give an audiogram or a norm"
            )
        answers = answers_of(reference.trials, domain)
        prior = hyperprior(reading_sd_db=protocol.reading_sd_db)
        return field.fit(answers, prior, protocol.guess, protocol.lapse)
    if isinstance(reference, Audiogram):
        return field.from_audiogram(reference, domain, protocol.guess, protocol.lapse)
    return field.from_norm(reference, domain, protocol.guess, protocol.lapse)
