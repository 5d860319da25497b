"""Which tone next: scores over the candidates (method.md, sections 3 and 5).

A strategy is a function from an `Outlook` (what the models expect of every candidate) to one score
per candidate, higher is better. `pick` takes the best allowed one and breaks ties by seed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from earshift.engine.compiled import compiled, within
from earshift.engine.domain import Axis, Domain
from earshift.engine.ep import log_ndtr
from earshift.engine.field import add_p_heard
from earshift.engine.refusal import Refusal
from earshift.engine.strategy import Strategy, named_own
from earshift.engine.tone import Tone, Trial

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

TIE = 1e-9  # scores this close are equal
_HALTON = 3  # a stream of chance of its own

# The entropy of an answer is a bump in f of a few units: beyond 9 it is constant to 1e-15.
_BUMP_EDGE, _BUMP_STEP = 9.0, 0.15
_NARROW_SD = 0.35  # below this a Gauss rule around the mean is exact and the bump rule is not
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(24)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


@within
def answer_entropy(f, guess, lapse):
    """Entropy in nats of an answer whose latent is f, accurate in both tails."""
    gain = 1.0 - guess - lapse
    p = guess + gain * math.exp(log_ndtr(f))
    q = lapse + gain * math.exp(log_ndtr(-f))
    out = 0.0
    if p > 0.0:
        out -= p * math.log(p)
    if q > 0.0:
        out -= q * math.log(q)
    return out


@compiled
def _bernoulli_entropies(p):
    out = np.zeros(p.size)
    for n in range(p.size):
        v = p[n]
        if 0.0 < v < 1.0:
            out[n] = -v * math.log(v) - (1.0 - v) * math.log1p(-v)
    return out


def bernoulli_entropy(p: Array) -> Array:
    """Entropy in nats of answers heard with probability p."""
    return np.reshape(_bernoulli_entropies(p.ravel()), p.shape)


def information(mu: Array, s: Array, guess: float, lapse: float) -> Array:
    """I(answer; f) for f ~ N(mu, s): h(E P) - E h(P), elementwise."""
    return np.reshape(_information(mu.ravel(), s.ravel(), guess, lapse), mu.shape)


@compiled
def _information(mu, s, guess, lapse):
    """E h is taken apart into a step from h(guess) to h(lapse), whose expectation is closed, and a
    bump. A trapezoid rule in f over the bump is exact to rounding for wide Gaussians; narrow ones
    take a Gauss rule around their mean.
    """
    out = np.empty(mu.size)
    gain = 1.0 - guess - lapse
    low = answer_entropy(-40.0, guess, lapse)
    high = answer_entropy(40.0, guess, lapse)
    n_bump = round(2.0 * _BUMP_EDGE / _BUMP_STEP) + 1
    bump = np.empty(n_bump)
    for j in range(n_bump):
        f = -_BUMP_EDGE + j * _BUMP_STEP
        step = low + (high - low) * math.exp(log_ndtr(f))
        bump[j] = answer_entropy(f, guess, lapse) - step
    for n in range(mu.size):
        m, v = mu[n], s[n]
        sd = math.sqrt(v)
        above = 0.5 * math.erfc(-m / math.sqrt(2.0 * (1.0 + v)))
        rest = 0.5 * math.erfc(m / math.sqrt(2.0 * (1.0 + v)))
        p, q = guess + gain * above, lapse + gain * rest
        total = 0.0
        if p > 0.0:
            total -= p * math.log(p)
        if q > 0.0:
            total -= q * math.log(q)
        expected = 0.0
        if sd < _NARROW_SD:
            for j in range(_NODES.size):
                expected += _WEIGHTS[j] * answer_entropy(m + sd * _NODES[j], guess, lapse)
        else:
            first = max(0, math.floor((m - 9.0 * sd + _BUMP_EDGE) / _BUMP_STEP))
            last = min(n_bump, math.ceil((m + 9.0 * sd + _BUMP_EDGE) / _BUMP_STEP) + 1)
            for j in range(first, last):
                z = (-_BUMP_EDGE + j * _BUMP_STEP - m) / sd
                expected += bump[j] * math.exp(-0.5 * z * z)
            expected *= _BUMP_STEP / (sd * math.sqrt(2.0 * math.pi))
            expected += low + (high - low) * above
        out[n] = max(0.0, total - expected)
    return out


@dataclass(frozen=True)
class Outlook:
    """What is known about every candidate before it is played, on the grid of the domain.

    An exam has a field alone; a screen also has hypotheses with their probabilities.

    Attributes:
        rng: for strategies that need chance.
        guess: probability of "heard" without hearing.
        lapse: probability of "missed" in spite of hearing.
        latent: gives mean and variance of f in the exam under way, on places x intensities.
        shape: of that grid. Of an exam of both ears, the right ear's places, then the left one's.
        hypotheses: P(hypothesis) and P(heard | hypothesis) on the grid, or None.
        domain: whose places and intensities the grid has; `domain.places` and
            `domain.intensities` are in model units, `domain.tone(place, level)` is a candidate.
        trials: all that was answered so far.

    Raises:
        Refusal: by an exam whose strategy gives scores of another shape, or nan.

    Examples:
        A strategy of one's own: the stimulus that is seen in three cases of four.

        >>> import earshift as es
        >>> def three_quarters(outlook: es.Outlook):
        ...     return -abs(outlook.p_mixed() - 0.75)
        >>> exam = es.Exam(strategy=three_quarters)
    """

    rng: np.random.Generator
    guess: float
    lapse: float
    latent: Callable[[], tuple[Array, Array]]
    shape: tuple[int, int]
    hypotheses: tuple[Array, Array] | None = None
    domain: Domain | None = None
    trials: tuple[Trial, ...] = ()

    def p_mixed(self) -> Array:
        """P(heard), hypotheses averaged.

        Returns:
            An array of places x levels.
        """
        if self.hypotheses is not None:
            return _averaged(*self.hypotheses)
        mu, s = self.latent()
        out = np.zeros(mu.shape)
        add_p_heard(mu, s, self.guess, self.lapse, 1.0, out)
        return out


def _averaged(weights: Array, values: Array) -> Array:
    """Weighted sum over the first axis."""
    out = weights[0] * values[0]
    for weight, value in zip(weights[1:], values[1:], strict=True):
        out += weight * value
    return np.asarray(out)


def differential(outlook: Outlook) -> Array:
    """BADS: I(answer; hypothesis) = H[p_mixed] - sum_M P(M) H[p_M]."""
    if outlook.hypotheses is None:
        raise Refusal("the differential strategy compares hypotheses: use it in a Screen")
    weights, heard = outlook.hypotheses
    expected = _averaged(weights, bernoulli_entropy(heard))
    return np.maximum(bernoulli_entropy(outlook.p_mixed()) - expected, 0.0)


def bald(outlook: Outlook) -> Array:
    """I(answer; field) of the exam under way: what the tone teaches about the field."""
    mu, s = outlook.latent()
    return information(mu, s, outlook.guess, outlook.lapse)


def level_set(outlook: Outlook) -> Array:
    """Straddle of the threshold f = 0: uncertain and close to it (1.96 SD - |mean|)."""
    mu, s = outlook.latent()
    return np.asarray(1.96 * np.sqrt(s) - np.abs(mu))


def uncertainty(outlook: Outlook) -> Array:
    """H[p_mixed]: the tone whose answer is least known."""
    return bernoulli_entropy(outlook.p_mixed())


def random(outlook: Outlook) -> Array:
    """Any tone."""
    return outlook.rng.random(outlook.shape)


STRATEGIES: dict[str, Callable[[Outlook], Array]] = {
    "differential": differential,
    "bald": bald,
    "level_set": level_set,
    "uncertainty": uncertainty,
    "random": random,
}


def as_strategy(given: "str | Strategy", whose: str, but: str = "") -> "str | Strategy":
    """A known strategy's name, or a function of the user's own; a refusal of anything else."""
    known = [name for name in STRATEGIES if name != but]
    if callable(given) or given in known or named_own(given):
        return given
    raise Refusal(
        f"strategy of {whose} must be one of {', '.join(known)}, or a function from an Outlook to "
        "a score for every candidate",
        got=given,
    )


def scored(strategy: "str | Strategy", outlook: Outlook) -> Array:
    """Scores of all candidates by a known strategy or by the user's own."""
    if not callable(strategy):
        if named_own(strategy):
            raise Refusal(
                f"the strategy {strategy!r} is a function of the user's own, which is not stored",
                advice="make the exam anew with strategy=... and tell it the stored trials",
            )
        return STRATEGIES[strategy](outlook)
    given = strategy(outlook)
    try:
        scores = np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        scores = np.array(np.nan)
    if scores.shape != outlook.shape or np.isnan(scores).any():
        raise Refusal(
            f"a strategy gives one number for each candidate, {outlook.shape[0]} places x "
            f"{outlook.shape[1]} intensities; got shape {scores.shape}"
            f"{' with numbers that are none' if np.isnan(scores).any() else ''}"
        )
    return scores


BY_HYPOTHESES = ("differential", "uncertainty")  # the strategies that look at hypotheses


def pick(scores: Array, allowed: Mask, rng: np.random.Generator) -> tuple[int, int]:
    """Indices of the best allowed candidate; among equals one drawn by rng."""
    if not allowed.any():
        raise Refusal(
            "no tone may be played: the level limits, the device and the other ear leave none"
        )
    masked = np.where(allowed, scores, -np.inf)
    best = masked.max()
    places, levels = np.nonzero(allowed & (masked >= best - TIE))
    n = int(rng.integers(places.size))
    return int(places[n]), int(levels[n])


def halton_point(number: int, axes: int, rng: np.random.Generator) -> Array:
    """Point `number` of the scrambled Halton sequence in the unit cube (Owen, 2017).

    Axis by axis the digits of the number in the next prime base, mirrored behind the point, each
    place with a shuffle of its own. The same as `scipy.stats.qmc.Halton`, whose import takes longer
    than a whole screen.
    """
    point = np.zeros(axes)
    (chance,) = rng.spawn(1)
    base = 1
    for axis in range(axes):
        base = next(n for n in count(base + 1) if all(n % k for k in range(2, n)))
        rest, weight = number, 1.0 / base
        for _ in range(math.ceil(54 / math.log2(base)) - 1):  # as many as a float can tell apart
            digits = np.arange(base)
            chance.shuffle(digits)
            rest, digit = divmod(rest, base)
            point[axis] += digits[digit] * weight
            weight /= base
    return point


def halton_tone(seed: int, number: int, domain: Domain, allowed: Mask) -> Tone:
    """Point `number` of the seed's scrambled Halton sequence, snapped to the allowed candidates."""
    rng = np.random.default_rng((seed, _HALTON))
    point = halton_point(number, len(domain.smooth) + 1, rng)
    axes: list[Axis] = [*domain.smooth, domain.intensity]
    low = np.array([axis.model_values[0] for axis in axes])
    high = np.array([axis.model_values[-1] for axis in axes])
    target = low + point * (high - low)
    span = np.where(high > low, high - low, 1.0)
    playable = allowed.any(axis=1)
    away = (((domain.places - target[:-1]) / span[:-1]) ** 2).sum(axis=1)
    place = int(np.where(playable, away, np.inf).argmin())
    level = int(np.where(allowed[place], np.abs(domain.intensities - target[-1]), np.inf).argmin())
    return domain.tone(place, level)
