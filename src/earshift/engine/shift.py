"""Change according to a rule: f_new = f_old - k delta (method.md, section 6).

The new exam's field is the reference's, its thresholds moved by delta dB (k: latent units per dB
from the reference's slope). delta is a mixture: retest jitter alone, or a real change of some shape
(flat, falling to the high frequencies, a notch) and size (worse or better) with jitter on top. Each
component is a Gaussian, EP conditions it on the new answers, and its evidence weighs it. Samples
from the mixture say whether the rule is met, and what each tone would tell about that.

A flat shift and a device that plays louder or softer than the reference's are the same thing to the
answers. Where a device offset is allowed, both are the `common` part of the shift: the rule is
judged on the rest, and a common part that would meet it is not determinable.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Self

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.optimize import brentq

from earshift.engine import ep
from earshift.engine.answers import Answers, answers_of
from earshift.engine.domain import Domain
from earshift.engine.field import Field
from earshift.engine.norms import tables
from earshift.engine.obstacles import unjudgeable
from earshift.engine.question import Setup, obstacle_notes
from earshift.engine.refusal import Refusal
from earshift.engine.rule_settings import RuleSettings
from earshift.engine.rules import Rule
from earshift.engine.thresholds import SMALLEST_SLOPE, threshold
from earshift.engine.tone import Trial

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

SAMPLES = 20480  # for P(rule met): Monte-Carlo error below 0.003 at the limits
SCORE_SAMPLES = 1024  # for the choice of the tone, half of them from changed ears
MOST_LOST = 0.01  # prior weight of components without a fixed point that a state may leave out

# The prior of a real change ----------------------------------------------------------------------

WORSE_DB = (8.0, 12.0, 17.0, 23.0, 32.0, 45.0)
BETTER_DB = (-8.0, -14.0, -24.0)
# How often, relative to each other. A change of the low frequencies alone is not what noise does;
# it is there so that nobody is cleared at frequencies that were never asked about.
FAMILIES = {"flat": 1.0, "high": 1.0, "notch": 1.0, "low": 0.4}
BETTER_SHARE = 0.25
RESIDUAL_SD_DB, RESIDUAL_OCTAVES = 4.0, 0.7
JITTER_OCTAVES = 1.0


def shapes(octaves: Array) -> dict[str, tuple[str, Array]]:
    """Family and unit change at these places (octaves re 1 kHz), by name."""

    def above(hz: float) -> Array:
        return np.asarray(1.0 / (1.0 + np.exp(-(octaves - math.log2(hz / 1000.0)) / 0.25)))

    def notch(hz: float) -> Array:
        return np.asarray(np.exp(-0.5 * ((octaves - math.log2(hz / 1000.0)) / 0.5) ** 2))

    out = {"flat": ("flat", np.ones(octaves.size))}
    out |= {f"above {hz:g} Hz": ("high", above(hz)) for hz in (1500.0, 2300.0, 3500.0)}
    out |= {f"notch at {hz:g} Hz": ("notch", notch(hz)) for hz in (2000.0, 3000.0, 4000.0, 6000.0)}
    out["below 1200 Hz"] = ("low", 1.0 - above(1200.0))
    out |= {f"notch at {hz:g} Hz": ("low", notch(hz)) for hz in (500.0, 1000.0)}
    return out


@dataclass(frozen=True)
class ChangePrior:
    """The components of a real change: a shape and a size each, with their weights."""

    names: tuple[str, ...]
    shape: NDArray[np.int64]  # which of `shapes`
    size_db: Array
    weight: Array
    flat: Flags  # the same change at every frequency

    def means(self, octaves: Array) -> Array:
        """Mean shift in dB of every component at these places: (C, F)."""
        units = np.array([unit for _, unit in shapes(octaves).values()])
        return np.asarray(units[self.shape] * self.size_db[:, None])


@cache
def change_prior(size_scale_db: float | None = None) -> ChangePrior:
    """Shapes by family; sizes fall off exponentially, by the shipped scale."""
    scale = tables()["change"]["size_scale_db"] if size_scale_db is None else size_scale_db
    known = shapes(np.zeros(1))
    families = [family for family, _ in known.values()]
    names, shape, size, weights = [], [], [], []
    for number, name in enumerate(known):
        share = FAMILIES[families[number]] / families.count(families[number])
        for sizes, total in ((WORSE_DB, 1.0 - BETTER_SHARE), (BETTER_DB, BETTER_SHARE)):
            decay = np.exp(-np.abs(sizes) / scale) * np.gradient(np.abs(sizes))
            for db, weight in zip(sizes, decay / decay.sum(), strict=True):
                names.append(f"{name}, {db:+g} dB")
                shape.append(number)
                size.append(db)
                weights.append(share * total * weight)
    return ChangePrior(
        tuple(names),
        np.array(shape),
        np.array(size),
        np.array(weights) / np.sum(weights),
        np.array([families[number] == "flat" for number in shape]),
    )


def shift_covariances(a: Array, b: Array, retest_sd_db: float) -> Array:
    """Covariance in dB^2 of the shift between two lists of octaves: jitter alone, and changed."""
    gaps = (a[:, None] - b[None, :]) ** 2
    jitter = retest_sd_db**2 * np.exp(-0.5 * gaps / JITTER_OCTAVES**2)
    residual = RESIDUAL_SD_DB**2 * np.exp(-0.5 * gaps / RESIDUAL_OCTAVES**2)
    return np.array([jitter, jitter + residual])


def shift_means(octaves: Array) -> Array:
    """Mean shift in dB at these octaves of "no change" and of every component of a change."""
    return np.vstack([np.zeros((1, octaves.size)), change_prior().means(octaves)])


def common_means(settings: RuleSettings) -> Array:
    """Mean in dB of each component's common part: none where no device offset is allowed."""
    prior = change_prior()
    flat = prior.flat & (settings.device_offset_sd_db > 0.0)
    return np.concatenate([[0.0], np.where(flat, prior.size_db, 0.0)])


PRIOR_DRAWS = 4000
MOST_CHANGED = 0.9  # share of changed ears beyond which the shapes of change give way


@cache  # the same for every screen by these settings, and most of the work of making one
def met_by_component(rule: Rule, settings: RuleSettings, part: str) -> Array:
    """Prior P(rule met) of "no change" and of every change.

    By the shift of hearing (`hearing`), by that without its common part (`rest`), or by all that
    is measured, a device offset included (`measured`).
    """
    octaves = np.log2(np.array(rule.frequencies_hz) / 1000.0)
    means = shift_means(octaves)
    covs = shift_covariances(octaves, octaves, settings.retest_sd_db)
    if part == "rest":
        means = means - common_means(settings)[:, None]
    elif part == "measured":
        covs = covs + settings.device_offset_sd_db**2
    noise = np.random.default_rng(101).standard_normal((PRIOR_DRAWS, octaves.size))
    met = np.empty(means.shape[0])
    for c in range(met.size):
        L = np.linalg.cholesky(covs[min(c, 1)] + 1e-9 * np.eye(octaves.size))
        met[c] = (rule.margin(means[c] + noise @ L.T) >= 0).mean()
    met.setflags(write=False)
    return met


@cache
def component_weights(rule: Rule, settings: RuleSettings) -> Array:
    """Prior weights of "no change" and every change, such that P(rule met) is the prevalence."""
    met = met_by_component(rule, settings, "hearing")
    shares = change_prior().weight
    a, b = float(met[0]), float(shares @ met[1:])
    slab = (settings.prevalence - a) / (b - a) if b > a else math.inf
    if slab < 0.0:
        raise Refusal(
            f"a prevalence of {settings.prevalence:g} cannot be had: retest jitter alone meets the "
            f"rule in {a:.3f} of unchanged ears"
        )
    if slab > MOST_CHANGED:  # more changes would not do: make those likelier that meet the rule
        slab = MOST_CHANGED
        wanted = (settings.prevalence - (1.0 - slab) * a) / slab

        def tilted(t: float) -> Array:
            raw = shares * np.exp(t * (met[1:] - 1.0))
            return np.asarray(raw / raw.sum())

        if not tilted(50.0) @ met[1:] > wanted:
            raise Refusal(f"a prevalence of {settings.prevalence:g} cannot be had by this rule")
        shares = tilted(float(brentq(lambda t: tilted(t) @ met[1:] - wanted, 0.0, 50.0)))
    out = np.concatenate([[1.0 - slab], slab * shares])
    out.setflags(write=False)
    return out


@njit(cache=True, nogil=True, error_model="numpy")
def fit_components(means, S, which, ib, x, y, guess, lapse):
    """EP for every component: prior mean means[c], covariance S[which[c]]."""
    n_parts, d = means.shape
    n = x.size
    log_Z = np.empty(n_parts)
    bs = np.empty((n_parts, d))
    Gs = np.empty((n_parts, d, d))
    ok = np.empty(n_parts, np.bool_)
    ia = np.zeros(n, np.int64)
    none = np.zeros(n)
    for c in range(n_parts):
        tau = np.zeros(n)
        nu = np.zeros(n)
        log_Z[c], b, G, ok[c] = ep.run(
            means[c], S[which[c]], ia, ib, x, y, none, guess, lapse, tau, nu, 1e-6
        )
        bs[c] = b
        Gs[c] = G
    return log_Z, bs, Gs, ok


@njit(cache=True, nogil=True, error_model="numpy")
def draw_components(counts, which, means, prior, link, bs, Gs, noise):
    """counts[c] Gaussian draws of every component in turn, given its answers: noise becomes draws.

    The root of a covariance that is singular (a variable without variance) is a Cholesky factor
    with zeros in that column.
    """
    d = means.shape[1]
    out = np.empty(noise.shape)
    row = 0
    for c in range(counts.size):
        if counts[c] == 0:
            continue
        C = link[which[c]]
        mean = means[c] + C @ bs[c]
        cov = prior[which[c]] - C @ Gs[c] @ C.T
        L = np.zeros((d, d))
        for j in range(d):
            left = cov[j, j]
            for k in range(j):
                left -= L[j, k] * L[j, k]
            if left > 1e-10 * (1.0 + prior[which[c]][j, j]):
                L[j, j] = math.sqrt(left)
                for i in range(j + 1, d):
                    total = cov[i, j]
                    for k in range(j):
                        total -= L[i, k] * L[j, k]
                    L[i, j] = total / L[j, j]
        out[row : row + counts[c]] = mean + noise[row : row + counts[c]] @ L.T
        row += counts[c]
    return out


@njit(cache=True, nogil=True, error_model="numpy")
def split_predictions(w, g, weight, group, n_groups, intensity, guess, lapse):
    """P(heard | group) on places x intensities for every group of weighted samples."""
    n_samples, n_places = g.shape
    n_levels = intensity.size
    out = np.zeros((n_groups, n_places, n_levels))
    total = np.zeros(n_groups)
    gain = 1.0 - guess - lapse
    for s in range(n_samples):
        side = group[s]
        total[side] += weight[s]
        for k in range(n_places):
            for j in range(n_levels):
                f = intensity[j] * w[s] + g[s, k]
                if f > 6.0:
                    out[side, k, j] += weight[s]
                elif f > -6.0:
                    out[side, k, j] += weight[s] * 0.5 * math.erfc(-f / math.sqrt(2.0))
    for side in range(n_groups):
        if total[side] > 0.0:
            out[side] = guess + gain * out[side] / total[side]
        else:
            out[side] = 0.5
    return out


NOT_MET, MET, COMMON = 0, 1, 2  # the rule is not met; met; met only with the common part


class ShiftModel:
    """A reference, a rule and settings: everything that does not change with the answers.

    `obstacles` are frequencies of the rule at which nothing can be said, and why: criteria that
    need them are left out of P(rule met), and without them nobody is cleared.
    """

    judges_around_obstacles = True
    protocol_name: str | None = None

    def __init__(
        self,
        reference: Field,
        domain: Domain,
        rule: Rule,
        settings: RuleSettings,
        seed: int,
        obstacles: Mapping[float, str] | None = None,
    ) -> None:
        unusable_hz = self.obstacles = {} if obstacles is None else obstacles
        self.reference, self.domain, self.rule, self.settings = reference, domain, rule, settings
        self.seed = seed
        self.judged = tuple(
            c for c in rule.criteria if not set(c.frequencies_hz) & set(unusable_hz)
        )
        self.complete = len(self.judged) == len(rule.criteria)
        self.open_hz = tuple(f for f in rule.frequencies_hz if f not in unusable_hz)
        axis = domain.smooth[0]
        self.rule_places = np.array([[axis.to_model(f)] for f in rule.frequencies_hz])
        mean, _ = reference.latent(domain.places[:1])
        self.k = max(float(mean[0]), SMALLEST_SLOPE) / domain.intensity.scale
        self.names = ("no change", *change_prior().names)
        self.which = np.minimum(np.arange(len(self.names)), 1)
        self.prior = component_weights(rule, settings)
        self.common_means = common_means(settings)
        self.prior_rest, self.prior_measured = settings.prevalence, settings.prevalence
        if self.judged and (self.offset_allowed or not self.complete):
            narrower = replace(rule, criteria=self.judged)
            self.prior_rest, self.prior_measured = (
                float(self.prior @ met_by_component(narrower, settings, part))
                for part in ("rest", "measured")
            )

    @classmethod
    def asked(cls, setup: Setup, rule: Rule, settings: RuleSettings) -> Self:
        """The question whether this rule is met, with what stands in its way."""
        if not setup.domain.of_tones:
            raise Refusal("threshold-shift rules need a domain of tones")
        found = unjudgeable(setup, rule)
        return cls(setup.reference, setup.domain, rule, settings, setup.seed, found)

    @property
    def offset_allowed(self) -> bool:
        return self.settings.device_offset_sd_db > 0.0

    def margin(self, delta: Array) -> Array:
        """dB past the criteria that can be judged; last axis: the rule's frequencies."""
        column = {f: k for k, f in enumerate(self.rule.frequencies_hz)}
        margins = [c.margin(delta[..., [column[f] for f in c.frequencies_hz]]) for c in self.judged]
        if not margins:
            return np.full(delta.shape[:-1], -np.inf)
        return np.asarray(np.max(margins, axis=0))

    def covariances(self, a: Array, b: Array) -> Array:
        """Covariance in dB^2 of delta between two lists of places: jitter alone, and changed."""
        return shift_covariances(a[:, 0], b[:, 0], self.settings.retest_sd_db)

    def assess(self, trials: Sequence[Trial], before: "ShiftState | None" = None) -> "ShiftState":
        """Everything the trials say; what was known before the last of them is of no use here."""
        return self.weigh(answers_of(trials, self.domain))

    def weigh(self, answers: Answers) -> "ShiftState":
        """The mixture given these answers."""
        used = answers.places
        m0, S0 = self.reference.latent(used)
        delta = self.covariances(used, used) + self.settings.device_offset_sd_db**2
        S = np.repeat(S0[None], 2, axis=0)
        S[:, 1:, 1:] += self.k**2 * delta
        means = np.repeat(m0[None], len(self.names), axis=0)
        means[:, 1:] -= self.k * shift_means(used[:, 0])
        log_Z, bs, Gs, ok = fit_components(
            means, S, self.which, answers.place + 1, answers.intensity, answers.answer,
            self.settings.guess, self.settings.lapse,
        )  # fmt: skip
        usable = ok & np.isfinite(log_Z)
        lost = float(self.prior[~usable].sum())
        if not usable.any():  # no fixed point anywhere, no evidence: the prior, and it says so
            log_Z, usable = np.zeros(log_Z.size), ~usable
            bs, Gs = np.zeros_like(bs), np.zeros_like(Gs)
        log_w = np.where(usable, log_Z, -np.inf) + np.log(self.prior)
        weights = np.exp(log_w - log_w.max())
        converged = lost < MOST_LOST
        return ShiftState(self, answers, weights / weights.sum(), bs, Gs, converged)


@dataclass(frozen=True)
class Draws:
    """Joint samples of the mixture: one row each."""

    slope: Array  # (N,), latent units per unit of intensity
    offsets: Array  # (N, places): f = slope * intensity + offset in the new exam
    delta_db: Array  # (N, spots): shift of hearing, without the common part
    common_db: Array  # (N,): shift that may be the device; zero where no offset is allowed
    component: NDArray[np.int64]

    @property
    def total_db(self) -> Array:
        return self.delta_db + self.common_db[:, None]


@dataclass(frozen=True)
class ShiftState:
    """The mixture after some answers."""

    model: ShiftModel
    answers: Answers
    weights: Array
    bs: Array
    Gs: Array
    converged: bool

    @property
    def tones(self) -> int:
        return self.answers.count

    @property
    def notes(self) -> tuple[str, ...]:
        """Where nothing could be said, a retest that the rule asks for, a shift of all."""
        notes = list(obstacle_notes(self.model.obstacles))
        if self.decision == "changed" and self.model.rule.confirm_by_retest:
            notes.append("The rule asks for an immediate retest of the same ear and frequency.")
        common = self.common_shift_db
        if common is not None:
            notes.append(
                f"A shift of {common[0]:+.0f} dB common to all frequencies: device or hearing, "
                "cannot be told apart."
            )
        return tuple(notes)

    def draw(
        self, places: Array, spots: Array, allocation: Array, count: int, purpose: int
    ) -> Draws:
        """Joint draws of the slope, the new offsets at places, and the shifts at the spots.

        Components get their shares of `count` by systematic resampling of the allocation. The
        variables are (slope, offsets at places, delta at spots, common).
        """
        model = self.model
        rng = np.random.default_rng((model.seed, self.answers.count, purpose))
        edges = np.cumsum(allocation) / allocation.sum()
        picks = np.searchsorted(edges, (np.arange(count) + rng.random()) / count)
        picks = np.minimum(picks, allocation.size - 1)
        used = self.answers.places
        n_places, n_spots = places.shape[0], spots.shape[0]
        near, far = slice(1, 1 + n_places), slice(1 + n_places, 1 + n_places + n_spots)
        size = 2 + n_places + n_spots
        m0, S0 = model.reference.latent(np.vstack([places, used]))
        inside = slice(0, 1 + n_places)
        beyond = [0, *range(1 + n_places, 1 + n_places + used.shape[0])]
        k, offset = model.k, model.settings.device_offset_sd_db**2
        prior = np.zeros((2, size, size))
        link = np.zeros((2, size, 1 + used.shape[0]))
        prior[:, inside, inside] = S0[inside, inside]
        prior[:, near, near] += k**2 * (model.covariances(places, places) + offset)
        prior[:, far, far] = model.covariances(spots, spots)
        prior[:, near, far] = -k * model.covariances(places, spots)
        prior[:, far, near] = prior[:, near, far].transpose(0, 2, 1)
        prior[:, -1, -1] = offset
        prior[:, near, -1] = prior[:, -1, near] = -k * offset
        link[:, inside] = S0[inside][:, beyond]
        link[:, near, 1:] += k**2 * (model.covariances(places, used) + offset)
        link[:, far, 1:] = -k * model.covariances(spots, used)
        link[:, -1, 1:] = -k * offset
        means = np.zeros((len(model.names), size))
        means[:, inside] = m0[inside]
        means[:, near] -= k * shift_means(places[:, 0])
        means[:, far] = shift_means(spots[:, 0]) - model.common_means[:, None]
        means[:, -1] = model.common_means
        counts = np.bincount(picks, minlength=allocation.size)
        out = draw_components(
            counts, model.which, means, prior, link, self.bs, self.Gs,
            rng.standard_normal((count, size)),
        )  # fmt: skip
        return Draws(out[:, 0], out[:, near], out[:, far], out[:, -1], picks)

    def tied(self, other: Self, p_same_change: float) -> Self:
        """This ear's mixture when the other ear of the person may have changed with it.

        With probability s both ears have the same component, else each its own:
        P(c, c') = (1 - s) p_c p_c' + s p_c [c = c'], which leaves either ear's own prior as it is.
        Given their components the ears' answers are independent, so the other ear's say
        (1 - s) + s P(c | other's answers) / p_c about component c of this one.
        """
        learnt = (1.0 - p_same_change) + p_same_change * other.weights / self.model.prior
        weights = self.weights * learnt
        return replace(
            self, weights=weights / weights.sum(), converged=self.converged and other.converged
        )

    @cached_property
    def rule_shifts(self) -> Draws:
        """Samples of the shift at the rule's frequencies."""
        none = np.zeros((0, self.answers.places.shape[1]))
        return self.draw(none, self.model.rule_places, self.weights, SAMPLES, 1)

    @cached_property
    def p_changed(self) -> float:
        """P(rule met | answers), the common part left aside; the prior where nothing is judged."""
        if not self.model.judged:
            return self.model.settings.prevalence
        return float((self.model.margin(self.rule_shifts.delta_db) >= 0).mean())

    @cached_property
    def p_with_common(self) -> float:
        """P(rule met | answers) if all of the common part were hearing."""
        return float((self.model.margin(self.rule_shifts.total_db) >= 0).mean())

    @property
    def log_bf(self) -> float:
        """Log likelihood ratio of "rule met" over "not met", kept finite by the sample's size."""
        if not self.model.judged:
            return 0.0
        prior = self.model.prior_rest
        p = min(max(self.p_changed, 0.5 / SAMPLES), 1.0 - 0.5 / SAMPLES)
        return math.log(p / (1.0 - p)) - math.log(prior / (1.0 - prior))

    @property
    def evidence_hz(self) -> tuple[float, ...]:
        """Changed: the frequencies of the criteria that are probably met; else all that count."""
        rule = self.model.rule
        if self.decision != "changed":
            return self.model.open_hz
        order = {f: k for k, f in enumerate(rule.frequencies_hz)}
        likely: dict[float, float] = {}
        for criterion in self.model.judged:
            columns = [order[f] for f in criterion.frequencies_hz]
            p = float((criterion.margin(self.rule_shifts.delta_db[:, columns]) >= 0).mean())
            for f in criterion.frequencies_hz:
                likely[f] = max(likely.get(f, 0.0), p)
        top = max(likely.values())
        return tuple(f for f in rule.frequencies_hz if likely.get(f, 0.0) >= min(0.5, top))

    @cached_property
    def clearing_risk(self) -> float:
        """Largest probability that one frequency is `clearing_excess_db` past its criterion."""
        order = {f: k for k, f in enumerate(self.model.rule.frequencies_hz)}
        excess = self.model.settings.clearing_excess_db
        return max(
            float((self.rule_shifts.total_db[:, order[f]] > c.at_least_db + excess).mean())
            for c in self.model.judged
            for f in c.frequencies_hz
        )

    @property
    def cleared(self) -> bool:
        """Whether the evidence, and not the prior alone, says that the rule is not met."""
        settings = self.model.settings
        if not self.model.judged or not self.converged:
            return False
        prior_odds = self.model.prior_measured / (1.0 - self.model.prior_measured)
        odds = self.p_with_common / max(1.0 - self.p_with_common, 1e-12)
        if odds * settings.clearing_ratio > prior_odds:
            return False
        return self.clearing_risk <= settings.clearing_risk

    @property
    def decision(self) -> str:
        settings = self.model.settings
        if not self.model.judged:
            return "not determinable"
        if self.p_changed >= settings.changed_at:
            return "changed"
        if self.p_changed > settings.unchanged_at:
            return "inconclusive"
        if self.p_with_common >= settings.changed_at:
            return "not determinable"
        if self.p_with_common <= settings.unchanged_at and self.cleared:
            return "unchanged" if self.model.complete else "not determinable"
        return "inconclusive"

    @property
    def common_shift_db(self) -> tuple[float, float, float] | None:
        """Median and 95 % interval of a shift that may be the device's, if there is much of one."""
        if not self.model.offset_allowed:
            return None
        middle, low, high = np.quantile(self.rule_shifts.common_db, (0.5, 0.025, 0.975))
        return (float(middle), float(low), float(high)) if abs(middle) >= 5.0 else None

    def hypotheses(self, places: Array, intensities: Array) -> tuple[Array, Array]:
        """Probabilities of not met, met (and met with the common part alone), and P(heard) of each.

        P(heard) is given on places x intensities.
        """
        model = self.model
        # Half of the draws from changed ears, so that the rarer side is not seen by a few only.
        changed = min(max(float(self.weights[1:].sum()), 1e-12), 1.0 - 1e-12)
        allocation = self.weights * np.where(
            np.arange(self.weights.size) == 0, 0.5 / (1.0 - changed), 0.5 / changed
        )
        draws = self.draw(places, model.rule_places, allocation, SCORE_SAMPLES, 2)
        weight = np.where(draws.component == 0, 1.0 - changed, changed)
        group = np.where(model.margin(draws.delta_db) >= 0, MET, NOT_MET)
        p = [1.0 - self.p_changed, self.p_changed]
        if model.offset_allowed:
            group[(group == NOT_MET) & (model.margin(draws.total_db) >= 0)] = COMMON
            either = (model.margin(self.rule_shifts.delta_db) >= 0) | (
                model.margin(self.rule_shifts.total_db) >= 0
            )
            p = [1.0 - float(either.mean()), self.p_changed, float(either.mean()) - self.p_changed]
        split = split_predictions(
            draws.slope, draws.offsets, weight, group, len(p), intensities,
            model.settings.guess, model.settings.lapse,
        )  # fmt: skip
        return np.array(p), split

    def before_and_after(
        self, places: Array, count: int, rng: np.random.Generator, weighed: bool
    ) -> tuple[Array, Array]:
        """Samples of the old and the new thresholds together, in model units.

        The posterior is one mixture, so weighing by probability (`weighed`) is all there is.
        """
        draws = self.draw(places, places, self.weights, count, 3)
        after = threshold(np.maximum(draws.slope, SMALLEST_SLOPE)[:, None], draws.offsets)
        return after - draws.total_db / self.model.domain.intensity.scale, after
