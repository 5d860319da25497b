"""Change according to a rule: f_new = f_old - k delta (method.md, section 6).

The new exam's field is the reference's, its thresholds moved by delta dB (k: latent units per dB
from the reference's slope). delta is a mixture: retest jitter alone, or a real change of some shape
(flat, falling to the high frequencies, a notch) and size (worse or better) with jitter on top. Each
component is a Gaussian, EP conditions it on the new answers, and its evidence weighs it. Samples
from the mixture say whether the rule is met, and what each tone would tell about that.
"""

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from earshift import ep
from earshift.field import Answers, Field
from earshift.rules import Rule
from earshift.stimulus import Domain, finite, whole

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

SAMPLES = 8192  # for P(rule met): Monte-Carlo error below 0.003 at the limits
SCORE_SAMPLES = 1024  # for the choice of the tone, half of them from changed ears
SMALLEST_SLOPE = 0.5  # latent units per 10 dB: below it the reference says nothing about dB


@dataclass(frozen=True)
class RuleSettings:
    """How a rule is screened for: what is expected, and when to stop."""

    prevalence: float = 0.12  # prior P(rule met)
    changed_at: float = 0.95
    unchanged_at: float = 0.02
    clearing_ratio: float = 10.0  # "unchanged" needs this likelihood ratio against "rule met"
    clearing_excess_db: float = 5.0  # ... and at most 5 % that one frequency is this far past
    clearing_risk: float = 0.05
    guess: float = 0.01
    lapse: float = 0.02
    retest_sd_db: float = 3.0
    device_offset_sd_db: float = 0.0
    max_tones: int = 30

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name != "max_tones":
                object.__setattr__(self, name, finite(value, name))
        object.__setattr__(self, "max_tones", whole(self.max_tones, "max_tones", 1))
        if not 0.0 < self.unchanged_at < self.prevalence < self.changed_at < 1.0:
            raise ValueError(
                "settings need 0 < unchanged_at < prevalence < changed_at < 1, got "
                f"{self.unchanged_at}, {self.prevalence}, {self.changed_at}"
            )
        if not self.clearing_ratio >= 1.0 or not 0.0 < self.clearing_risk < 1.0:
            raise ValueError("clearing_ratio must be at least 1, clearing_risk between 0 and 1")
        if not self.retest_sd_db > 0.0 or self.device_offset_sd_db < 0.0:
            raise ValueError("retest_sd_db must be positive, device_offset_sd_db not negative")
        ep.check_rates(self.guess, self.lapse)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


# The prior of a real change ----------------------------------------------------------------------

WORSE_DB = (8.0, 12.0, 16.0, 20.0, 25.0, 32.0, 42.0, 55.0)
BETTER_DB = (-8.0, -12.0, -16.0, -22.0, -32.0)
SIZE_SCALE_DB = 12.0
BETTER_SHARE = 0.25
RESIDUAL_SD_DB, RESIDUAL_OCTAVES = 4.0, 0.7
JITTER_OCTAVES = 1.0


def shapes(octaves: Array) -> dict[str, Array]:
    """Unit changes at these places (octaves re 1 kHz), by name."""
    out = {"flat": np.ones(octaves.size)}
    for hz in (1500.0, 2300.0, 3500.0):
        out[f"above {hz:g} Hz"] = 1.0 / (1.0 + np.exp(-(octaves - math.log2(hz / 1000.0)) / 0.25))
    for hz in (2000.0, 3000.0, 4000.0, 6000.0):
        gap = octaves - math.log2(hz / 1000.0)
        out[f"notch at {hz:g} Hz"] = np.exp(-0.5 * (gap / 0.5) ** 2)
    return out


def change_prior(octaves: Array) -> tuple[list[str], Array, Array]:
    """Names, mean shifts in dB (C, F) and weights (C) of the components of a real change."""
    names, means, weights = [], [], []
    forms = shapes(octaves)
    groups = {"flat": 1.0, "above": 1.0, "notch": 1.0}
    for name, form in forms.items():
        family = name.split()[0]
        share = groups[family] / sum(key.split()[0] == family for key in forms)
        for sizes, total in ((WORSE_DB, 1.0 - BETTER_SHARE), (BETTER_DB, BETTER_SHARE)):
            decay = np.exp(-np.abs(sizes) / SIZE_SCALE_DB) * np.gradient(np.abs(sizes))
            for size, weight in zip(sizes, decay / decay.sum(), strict=True):
                names.append(f"{name}, {size:+g} dB")
                means.append(size * form)
                weights.append(share * total * weight)
    return names, np.array(means), np.array(weights) / np.sum(weights)


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
def split_predictions(w, g, weight, met, intensity, guess, lapse):
    """P(heard | rule met) and P(heard | not met) on places x intensities, from weighted samples."""
    n_samples, n_places = g.shape
    n_levels = intensity.size
    out = np.zeros((2, n_places, n_levels))
    total = np.zeros(2)
    gain = 1.0 - guess - lapse
    for s in range(n_samples):
        side = 0 if met[s] else 1
        total[side] += weight[s]
        for k in range(n_places):
            for j in range(n_levels):
                f = intensity[j] * w[s] + g[s, k]
                if f > 6.0:
                    p = 1.0
                elif f < -6.0:
                    p = 0.0
                else:
                    p = 0.5 * math.erfc(-f / math.sqrt(2.0))
                out[side, k, j] += weight[s] * p
    for side in range(2):
        if total[side] > 0.0:
            out[side] = guess + gain * out[side] / total[side]
        else:
            out[side] = 0.5
    return out


class ShiftModel:
    """A reference, a rule and settings: everything that does not change with the answers."""

    def __init__(
        self, reference: Field, domain: Domain, rule: Rule, settings: RuleSettings, seed: int
    ) -> None:
        self.reference, self.domain, self.rule, self.settings = reference, domain, rule, settings
        self.seed = seed
        axis = domain.smooth[0]
        self.rule_places = np.array([[axis.to_model(f)] for f in rule.frequencies_hz])
        mean, _ = reference.latent(domain.places[:1])
        self.k = max(float(mean[0]), SMALLEST_SLOPE) / domain.intensity.scale
        self.names = ["no change", *change_prior(np.zeros(1))[0]]
        self.which = np.minimum(np.arange(len(self.names)), 1)

    def covariances(self, a: Array, b: Array) -> Array:
        """Covariance in dB^2 of delta between two lists of places: jitter alone, and changed."""
        gaps = (a[:, :1] - b[:, 0][None, :]) ** 2
        s = self.settings
        jitter = s.retest_sd_db**2 * np.exp(-0.5 * gaps / JITTER_OCTAVES**2)
        residual = RESIDUAL_SD_DB**2 * np.exp(-0.5 * gaps / RESIDUAL_OCTAVES**2)
        return np.array([jitter, jitter + residual])

    def means(self, places: Array) -> Array:
        """Prior mean of delta in dB for every component: (C, F)."""
        changed = change_prior(places[:, 0])[1]
        return np.vstack([np.zeros((1, places.shape[0])), changed])

    @cached_property
    def prior(self) -> Array:
        """Component weights such that P(rule met) is the prevalence before any tone."""
        shares = change_prior(np.zeros(1))[2]
        rng = np.random.default_rng((self.seed, 101))
        draws = 4000
        means = self.means(self.rule_places)
        covs = self.covariances(self.rule_places, self.rule_places)
        noise = rng.standard_normal((draws, self.rule_places.shape[0]))
        met = np.empty(len(self.names))
        for c, kind in enumerate(self.which):
            L = np.linalg.cholesky(covs[kind] + 1e-9 * np.eye(covs.shape[1]))
            met[c] = (self.rule.margin(means[c] + noise @ L.T) >= 0).mean()
        a, b = met[0], float(shares @ met[1:])
        if not a < self.settings.prevalence < b:
            raise ValueError(
                f"a prevalence of {self.settings.prevalence:g} cannot be had: the rule is met by "
                f"{a:.3f} of unchanged ears through retest jitter and by {b:.3f} of changed ones"
            )
        slab = (self.settings.prevalence - a) / (b - a)
        return np.concatenate([[1.0 - slab], slab * shares])

    def assess(self, answers: Answers) -> "ShiftState":
        """Everything the answers say."""
        used = answers.places
        m0, S0 = self.reference.latent(used)
        delta = self.covariances(used, used) + self.settings.device_offset_sd_db**2
        S = np.repeat(S0[None], 2, axis=0)
        S[:, 1:, 1:] += self.k**2 * delta
        means = np.repeat(m0[None], len(self.names), axis=0)
        means[:, 1:] -= self.k * self.means(used)
        log_Z, bs, Gs, ok = fit_components(
            means, S, self.which, answers.place + 1, answers.intensity, answers.answer,
            self.settings.guess, self.settings.lapse,
        )  # fmt: skip
        usable = ok & np.isfinite(log_Z)
        if not usable.any():  # no fixed point anywhere, no evidence: the prior, and it says so
            log_Z, usable = np.zeros(log_Z.size), ~usable
        log_w = np.where(usable, log_Z, -np.inf) + np.log(self.prior)
        weights = np.exp(log_w - log_w.max())
        return ShiftState(self, answers, weights / weights.sum(), bs, Gs, bool(ok.mean() > 0.9))


@dataclass(frozen=True)
class ShiftState:
    """The mixture after some answers."""

    model: ShiftModel
    answers: Answers
    weights: Array
    bs: Array
    Gs: Array
    converged: bool

    def samples(
        self, places: Array, spots: Array, allocation: Array, count: int, purpose: int
    ) -> tuple[Array, Array, Array, NDArray[np.int64]]:
        """Joint draws of the slope, the new offsets at places, and delta at the spots.

        Components get their shares of `count` by systematic resampling of the allocation.
        """
        model = self.model
        rng = np.random.default_rng((model.seed, self.answers.count, purpose))
        edges = np.cumsum(allocation) / allocation.sum()
        picks = np.searchsorted(edges, (np.arange(count) + rng.random()) / count)
        picks = np.minimum(picks, allocation.size - 1)
        used = self.answers.places
        n_places, n_rule = places.shape[0], spots.shape[0]
        size = 1 + n_places + n_rule
        everywhere = np.vstack([places, used])
        m0, S0 = model.reference.latent(everywhere)
        inside = slice(0, 1 + n_places)
        beyond = [0, *range(1 + n_places, 1 + n_places + used.shape[0])]
        k, offset = model.k, model.settings.device_offset_sd_db**2
        place_means, rule_means = model.means(places), model.means(spots)
        prior, link = [], []
        for kind in range(2):
            K = np.zeros((size, size))
            K[inside, inside] = S0[inside, inside]
            K[1 : 1 + n_places, 1 : 1 + n_places] += k**2 * (
                model.covariances(places, places)[kind] + offset
            )
            K[1 + n_places :, 1 + n_places :] = model.covariances(spots, spots)[kind]
            K[1 : 1 + n_places, 1 + n_places :] = -k * model.covariances(places, spots)[kind]
            K[1 + n_places :, 1 : 1 + n_places] = K[1 : 1 + n_places, 1 + n_places :].T
            C = np.zeros((size, 1 + used.shape[0]))
            C[inside] = S0[inside][:, beyond]
            C[1 : 1 + n_places, 1:] += k**2 * (model.covariances(places, used)[kind] + offset)
            C[1 + n_places :, 1:] = -k * model.covariances(spots, used)[kind]
            prior.append(K)
            link.append(C)
        noise = rng.standard_normal((count, size))
        draws = np.empty((count, size))
        for c in np.unique(picks):
            kind = model.which[c]
            mean = np.concatenate([m0[: 1 + n_places], rule_means[c]])
            mean[1 : 1 + n_places] -= k * place_means[c]
            mean += link[kind] @ self.bs[c]
            cov = prior[kind] - link[kind] @ self.Gs[c] @ link[kind].T
            values, vectors = np.linalg.eigh(0.5 * (cov + cov.T))
            root = vectors * np.sqrt(np.maximum(values, 0.0))
            chosen = picks == c
            draws[chosen] = mean + noise[chosen] @ root.T
        return draws[:, 0], draws[:, 1 : 1 + n_places], draws[:, 1 + n_places :], picks

    @cached_property
    def rule_shifts(self) -> Array:
        """Samples of delta at the rule's frequencies."""
        none = np.zeros((0, self.answers.places.shape[1]))
        return self.samples(none, self.model.rule_places, self.weights, SAMPLES, 1)[2]

    @cached_property
    def p_changed(self) -> float:
        """P(rule met | answers)."""
        return float((self.model.rule.margin(self.rule_shifts) >= 0).mean())

    @property
    def log_bf(self) -> float:
        """Log likelihood ratio of "rule met" over "not met", kept finite by the sample's size."""
        prior = self.model.settings.prevalence
        p = min(max(self.p_changed, 0.5 / SAMPLES), 1.0 - 0.5 / SAMPLES)
        return math.log(p / (1.0 - p)) - math.log(prior / (1.0 - prior))

    @property
    def evidence_hz(self) -> tuple[float, ...]:
        """Changed: the frequencies of the criteria that are probably met; else all of the rule."""
        rule = self.model.rule
        if self.decision != "changed":
            return rule.frequencies_hz
        order = {f: k for k, f in enumerate(rule.frequencies_hz)}
        likely: dict[float, float] = {}
        for criterion in rule.criteria:
            columns = [order[f] for f in criterion.frequencies_hz]
            p = float((criterion.margin(self.rule_shifts[:, columns]) >= 0).mean())
            for f in criterion.frequencies_hz:
                likely[f] = max(likely.get(f, 0.0), p)
        top = max(likely.values())
        return tuple(f for f in rule.frequencies_hz if likely[f] >= min(0.5, top))

    @property
    def cleared(self) -> bool:
        """Whether the evidence, and not the prior alone, says that the rule is not met."""
        settings, rule = self.model.settings, self.model.rule
        prior_odds = settings.prevalence / (1.0 - settings.prevalence)
        odds = self.p_changed / max(1.0 - self.p_changed, 1e-12)
        if odds * settings.clearing_ratio > prior_odds:
            return False
        order = {f: k for k, f in enumerate(rule.frequencies_hz)}
        for criterion in rule.criteria:
            limit = criterion.at_least_db + settings.clearing_excess_db
            for f in criterion.frequencies_hz:
                if (self.rule_shifts[:, order[f]] > limit).mean() > settings.clearing_risk:
                    return False
        return True

    @property
    def decision(self) -> str:
        settings = self.model.settings
        if self.p_changed >= settings.changed_at:
            return "changed"
        if self.p_changed <= settings.unchanged_at and self.cleared:
            return "unchanged"
        return "inconclusive"

    def predictions(self, places: Array, intensities: Array) -> tuple[Array, Array]:
        """P(heard) on places x intensities if the rule is not met, and if it is."""
        model = self.model
        # Half of the draws from changed ears, so that the rarer side is not seen by a few only.
        changed = min(max(float(self.weights[1:].sum()), 1e-12), 1.0 - 1e-12)
        allocation = self.weights * np.where(
            np.arange(self.weights.size) == 0, 0.5 / (1.0 - changed), 0.5 / changed
        )
        w, g, delta, picks = self.samples(places, model.rule_places, allocation, SCORE_SAMPLES, 2)
        weight = np.where(picks == 0, 1.0 - changed, changed)
        met = model.rule.margin(delta) >= 0
        split = split_predictions(
            w, g, weight, met, intensities, model.settings.guess, model.settings.lapse
        )
        return split[1], split[0]

    def before_and_after(
        self, places: Array, count: int, rng: np.random.Generator, weighed: bool
    ) -> tuple[Array, Array]:
        """Samples of the old and the new thresholds together, in model units.

        The posterior is one mixture, so weighing by probability (`weighed`) is all there is.
        """
        w, g, delta, _ = self.samples(places, places, self.weights, count, 3)
        after = -g / np.maximum(w, SMALLEST_SLOPE)[:, None]
        return after - delta / self.model.domain.intensity.scale, after
