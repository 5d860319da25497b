"""Same or different? The paper's question: has the field changed from the reference's?

Method.md, sections 4 and 5. Two hypotheses: nothing changed (M_f), or another field explains the
new exam (M_g). Both condition on the reference once and then run EP on the new tones only; what is
left are their evidences and, for any tone, what each expects.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from earshift.engine import ep, kernels
from earshift.engine.answers import Answers, answers_of
from earshift.engine.compiled import compiled, compiling
from earshift.engine.evidence import (
    Rates,
    Reference,
    Rows,
    Sites,
    empty_sites,
    mixture_weights,
)
from earshift.engine.field import (
    Field,
    GridGaps,
    add_p_heard,
    conditioned,
    latent_grid,
    moments_on_grid,
)
from earshift.engine.norms import Hyperprior, Whitened
from earshift.engine.obstacles import unreachable
from earshift.engine.optimise import NO_HESSIAN, at, evidence_at, maximise
from earshift.engine.protocol import Protocol
from earshift.engine.question import UNCHANGED, Setup, obstacle_notes
from earshift.engine.rules import Rule
from earshift.engine.shifted import Shifted, shift_prior, shifted
from earshift.engine.thresholds import positive_slope_samples, threshold
from earshift.engine.tone import Trial

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

EIGENVALUE_FLOOR = 0.1  # of the whitened Hessian; the hyperprior alone gives 1
MOST_DOUBTFUL = 0.01  # share of the evidence that may come from fits that did not settle
TELLABLE = 1e-15  # probability of M_f below which 1 - p is rounding; a larger one lowers the ratio
MEAN_SD = 12.0  # of c_g where nothing else is free, in latent units: wider than all of hearing


class ConjointFit(NamedTuple):
    """M_g fitted at every one of J correlations.

    `us` (J, k) are the modes in the hyperprior's coordinates, `log_evidence` (J) the one there,
    `bs` (J, d) and `Gs` (J, d, d) what EP keeps, `hessians` (J, k, k) the whitened Hessians (zero
    unless asked for), `found` where the mode was found and `fixed` where EP has a fixed point.
    """

    us: Array
    log_evidence: Array
    bs: Array
    Gs: Array
    hessians: Array
    found: Flags
    fixed: Flags


class Components(NamedTuple):
    """A mixture over correlations: weights, correlations, hyperparameters, EP's b and G."""

    weights: Array
    rhos: Array
    thetas: Array
    bs: Array
    Gs: Array


def fit_conjoint(
    refit: int,
    laplace: bool,
    rhos: Array,
    prior: Whitened,
    reference: Reference,
    rows: Rows,
    rates: Rates | None,
) -> ConjointFit:
    """Fit M_g at every correlation. refit: 0 not at all, 1 one theta per rho, 2 one for all.

    What is shared by all rho stands in the first row of the answer and is repeated in the others.
    """
    n_rho, k, d, n = rhos.size, prior.centre.size, rows.gaps.shape[1] + 1, rows.x.size
    us = np.zeros((n_rho, k))
    log_Z = np.empty(n_rho)
    bs = np.empty((n_rho, d))
    Gs = np.empty((n_rho, d, d))
    hessians = np.zeros((n_rho, k, k))
    sites = Sites(np.zeros((n_rho, n)), np.zeros((n_rho, n)))
    H = np.eye(k)
    found = np.ones(n_rho, np.bool_)
    fixed = np.ones(n_rho, np.bool_)
    streak = 0  # neighbours in a row whose mode was found
    for j in range(n_rho):
        if refit == 1 or (refit == 2 and j == 0):
            asked = slice(None) if refit == 2 else slice(j, j + 1)
            own = Sites(sites.tau[asked], sites.nu[asked])
            hessian = hessians[j] if laplace else NO_HESSIAN
            found[j] = False
            if streak >= 2:
                # From the neighbours' modes, curvature and sites: still the trials alone.
                us[j] = 2.0 * us[j - 1] - us[j - 2]
                own.tau[0], own.nu[0] = sites.tau[j - 1], sites.nu[j - 1]
                if ep.is_apart(own.tau[0]):
                    own.tau[0] = 0.0
                found[j] = maximise(
                    us[j], H, rhos[asked], prior, reference, rows, rates, own, hessian
                )
            if not found[j]:
                us[j], own.tau[:], own.nu[:], H[:] = 0.0, 0.0, 0.0, np.eye(k)
                found[j] = maximise(
                    us[j], H, rhos[asked], prior, reference, rows, rates, own, hessian
                )
            streak = streak + 1 if found[j] else 0
        elif refit == 2:
            us[j], hessians[j], found[j] = us[0], hessians[0], found[0]
        log_Z[j], _, bs[j], Gs[j], fixed[j] = evidence_at(
            at(prior, us[j]), rhos[j], reference, rows, rates,
            Sites(sites.tau[j], sites.nu[j]),
        )  # fmt: skip
    return ConjointFit(us, log_Z, bs, Gs, hessians, found, fixed)


def laplace_terms(us: Array, hessians: Array) -> tuple[Array, bool]:
    """What integrating theta_g adds to each log evidence at its mode: -|u|^2/2 - log|H|/2.

    H is the identity without data, so the term is 0 then. Eigenvalues that are not safely positive
    are floored; the second value says whether any was.
    """
    values = np.linalg.eigvalsh(0.5 * (hessians + hessians.transpose(0, 2, 1)))
    floored = np.maximum(values, EIGENVALUE_FLOOR)
    return (
        -0.5 * (us**2).sum(axis=1) - 0.5 * np.log(floored).sum(axis=1),
        bool((values < EIGENVALUE_FLOOR).any()),
    )


@compiled
def mixture_p_heard(parts, reference, grid, intensity, rates):
    """P(heard) on the grid, averaged over the correlations."""
    out = np.zeros((grid.to_answers.shape[1], intensity.size))
    for j in range(parts.weights.size):
        if parts.weights[j] > 0.0:
            mean, cov_w, var = latent_grid(
                parts.thetas[j], parts.rhos[j], reference, grid, parts.bs[j], parts.Gs[j]
            )
            mu, s = moments_on_grid(mean, cov_w, var, intensity)
            add_p_heard(mu, s, rates.guess, rates.lapse, parts.weights[j], out)
    return out


@dataclass(frozen=True)
class Hypothesis:
    """One hypothesis about the new exam, fitted: a mixture over correlations (M_f has just one).

    Attributes:
        reference: the field that it is tied to.
        answers: of the new exam.
        rhos: the correlations with the reference, (J).
        weights: of the correlations in the prediction, (J).
        thetas: hyperparameters at each correlation.
        bs: EP's at each correlation.
        Gs: EP's at each correlation.
        log_evidence: of the answers, in nats, averaged over the correlations.
        converged: whether what matters of the fit settled.
        floored: whether Laplace's term met a curvature that was not safely positive.
    """

    reference: Field
    answers: Answers
    rhos: Array
    weights: Array
    thetas: Array
    bs: Array
    Gs: Array
    log_evidence: float
    converged: bool
    floored: bool = False

    def p_heard(self, places: Array, intensity: Array) -> Array:
        """P(heard) on places x intensities, in model units."""
        reference, used = self.reference, self.answers.places
        grid = GridGaps(
            kernels.squared_gaps(reference.places, places), kernels.squared_gaps(places, used)
        )
        parts = Components(self.weights, self.rhos, self.thetas, self.bs, self.Gs)
        return mixture_p_heard(
            parts, reference.as_reference(used), grid, intensity, reference.rates
        )

    def latent_pair(self, component: int, places: Array) -> tuple[Array, Array]:
        """Posterior of the old and the new latent vectors together, under one correlation.

        Mean and covariance of (w, h) old followed by (w, h) new at the places.
        """
        old, used = self.reference, self.answers.places
        theta, rho = self.thetas[component], self.rhos[component]
        old_gaps = kernels.squared_gaps(old.places, places)
        to_old = kernels.cross(old.theta, old.theta, old_gaps)
        to_new = rho * kernels.cross(old.theta, theta, old_gaps)
        to_used = rho * kernels.cross(old.theta, theta, kernels.squared_gaps(old.places, used))
        here = kernels.squared_gaps(places, places)
        to_places = np.hstack([to_old, to_new])
        prior = kernels.two_exams(old.theta, theta, rho, here)
        d = places.shape[0] + 1
        mean = np.concatenate([np.full(d, old.theta[0]), np.full(d, theta[0])])
        mean[[0, d]] = old.slope_mean
        mean, cov = conditioned(mean, prior, to_places.T, old.b, old.G)
        gaps_used = kernels.squared_gaps(places, used)
        link = (
            np.vstack(
                [
                    rho * kernels.cross(old.theta, theta, gaps_used),
                    kernels.cross(theta, theta, gaps_used),
                ]
            )
            - to_places.T @ old.G @ to_used
        )
        return conditioned(mean, cov, link, self.bs[component], self.Gs[component])

    def before_and_after(
        self, places: Array, count: int, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Samples of the old and the new thresholds together, in model units."""
        counts = rng.multinomial(count, self.weights / self.weights.sum())
        d = places.shape[0] + 1
        old, new = [], []
        for component in np.nonzero(counts)[0]:
            mean, cov = self.latent_pair(int(component), places)
            draws = positive_slope_samples(mean, cov, [0, d], int(counts[component]), rng)
            old.append(threshold(draws[:, :1], draws[:, 1:d]))
            new.append(threshold(draws[:, d : d + 1], draws[:, d + 1 :]))
        return np.concatenate(old), np.concatenate(new)


def same(reference: Field, answers: Answers) -> Hypothesis:
    """M_f: the new answers come from the reference field itself, its hyperparameters fixed."""
    log_Z, _, b, G, ok = evidence_at(
        reference.theta, 1.0, reference.as_reference(answers.places), answers.rows(),
        reference.rates.chances, empty_sites(answers.count),
    )  # fmt: skip
    return Hypothesis(
        reference=reference,
        answers=answers,
        rhos=np.ones(1),
        weights=np.ones(1),
        thetas=reference.theta[None, :],
        bs=b[None, :],
        Gs=G[None, :, :],
        log_evidence=float(log_Z),
        converged=bool(ok),
    )


def conjoint(
    reference: Field, answers: Answers, protocol: Protocol, prior: Hyperprior
) -> Hypothesis:
    """M_g: another field, correlated with the reference's by an unknown rho.

    The evidence here is the quadrature over rho, plug-in or with Laplace's term; the running
    product is a matter of the order of the trials and is kept by `ChangeQuestion`.
    """
    if protocol.hyperprior_g == "reference":
        prior = prior.centred_on(reference.theta)
    if protocol.free_g == "mean":
        prior = prior.of_mean_alone(MEAN_SD)
    if protocol.prior_scale != 1.0:
        prior = prior.scaled(protocol.prior_scale)
    whitened = prior.whitened(answers.places.shape[1])
    rhos = protocol.rhos
    n = answers.count
    refit = 0 if n == 0 else {"fixed": 0, "per_rho": 1, "shared": 2}[protocol.theta_g]
    laplace = protocol.evidence == "laplace" and refit > 0
    with compiling("screen"):
        fitted = fit_conjoint(
            refit, laplace, rhos, whitened, reference.as_reference(answers.places),
            answers.rows(), reference.rates.chances,
        )  # fmt: skip
    log_Z, fixed = fitted.log_evidence, fitted.fixed
    floored = False
    if laplace:
        terms, floored = laplace_terms(fitted.us, fitted.hessians)
        log_Z = log_Z + terms
    log_Z = np.where(np.isfinite(log_Z), log_Z, -np.inf)
    rough = np.exp(log_Z - max(log_Z.max(), -1e300))
    # With lapses EP may not settle at a correlation that the answers all but refute: what it then
    # returns is a rough evidence (see ep.py), and counts as such. Those correlations, and modes not
    # found, are only reported if they might have mattered.
    doubtful = rough[~(fitted.found & fixed)].sum() / max(rough.sum(), 1e-300)
    usable = np.isfinite(log_Z)
    if usable.any():
        weights, log_evidence = mixture_weights(log_Z, int(usable.sum()))
        uniform = usable / usable.sum()
    else:
        weights = uniform = np.full(rhos.size, 1.0 / rhos.size)
        log_evidence = -math.inf
    return Hypothesis(
        reference=reference,
        answers=answers,
        rhos=rhos,
        weights=uniform if protocol.rho_weights == "prior" else weights,
        thetas=np.array([at(whitened, u) for u in fitted.us]),
        bs=fitted.bs,
        Gs=fitted.Gs,
        log_evidence=log_evidence,
        converged=bool(usable.any() and doubtful < MOST_DOUBTFUL),
        floored=floored,
    )


def posterior(log_bf: float, prior: float) -> float:
    """Probability of a hypothesis from its log Bayes factor against the other, and its prior."""
    log_odds = log_bf + math.log(prior / (1.0 - prior))
    if log_odds > 0:
        return 1.0 / (1.0 + math.exp(-log_odds))
    odds = math.exp(log_odds)
    return odds / (1.0 + odds)


@dataclass(frozen=True)
class ChangePosterior:
    """Both hypotheses after some answers."""

    question: "ChangeQuestion"
    answers: Answers
    unchanged: Hypothesis
    different: Hypothesis | Shifted
    log_different: float

    evidence_hz: tuple[float, ...] = ()

    @property
    def tones(self) -> int:
        """How many answers it stands on."""
        return self.answers.count

    @property
    def converged(self) -> bool:
        """Whether both fits settled."""
        return self.unchanged.converged and self.different.converged

    @property
    def log_bf(self) -> float:
        """Log evidence of different over same."""
        if not (self.unchanged.converged and math.isfinite(self.log_different)):
            return 0.0  # no fixed point, no evidence; `converged` says so
        return self.log_different - self.unchanged.log_evidence

    def log_ratio_of(self, trial: Trial) -> float:
        """Log of M_g's over M_f's probability of the next answer, this one: what it is worth.

        0 where either fit did not settle: such an answer counts for nothing.
        """
        if not self.converged:
            return 0.0
        domain = self.question.domain
        place = np.array([domain.place_of(trial.tone)])
        level = np.array([domain.intensity_of(trial.tone)])
        p_f, p_g = (h.p_heard(place, level)[0, 0] for h in (self.unchanged, self.different))
        if not trial.heard:
            p_f, p_g = 1.0 - p_f, 1.0 - p_g
        return math.log(max(p_g, 1e-300)) - math.log(max(p_f, TELLABLE))

    @property
    def p_changed(self) -> float:
        """Posterior probability that the field is another one."""
        return posterior(self.log_bf, self.question.settings.prior_changed)

    @property
    def decision(self) -> str:
        """changed or unchanged from the Bayes factor on, either way; else inconclusive."""
        limit = math.log(self.question.settings.bayes_factor)
        if self.log_bf >= limit:
            return "changed"
        return UNCHANGED if self.log_bf <= -limit else "inconclusive"

    @property
    def notes(self) -> tuple[str, ...]:
        """Where nothing could be said."""
        return obstacle_notes(self.question.obstacles)

    def tied(self, other: Self, p_same_change: float) -> Self:
        """This ear's evidence when the other ear of the person may have changed with it.

        With probability `p_same_change` both ears changed or neither did, else each for itself;
        what the other ear's answers then say about this ear counts as evidence.
        """
        prior = self.question.settings.prior_changed
        either = np.logaddexp(math.log(prior) + other.log_bf, math.log1p(-prior))
        with np.errstate(divide="ignore"):  # a probability of 0 or 1 is fine
            apart, alike = np.log1p(-p_same_change) + either, np.log(p_same_change)
        learnt = np.logaddexp(apart, alike + other.log_bf) - np.logaddexp(apart, alike)
        return replace(self, log_different=self.log_different + float(learnt))

    def hypotheses(self, places: Array, intensities: Array) -> tuple[Array, Array]:
        """Probabilities of unchanged and changed, and P(heard) of each on places x intensities."""
        parts = [h.p_heard(places, intensities) for h in (self.unchanged, self.different)]
        return np.array([1.0 - self.p_changed, self.p_changed]), np.array(parts)

    def before_and_after(
        self, places: Array, count: int, rng: np.random.Generator, weighed: bool
    ) -> tuple[Array, Array]:
        """Samples of the old and the new thresholds together, in model units.

        Of both hypotheses by their probability (`weighed`), or of the different ear alone.
        """
        changed = int(rng.binomial(count, self.p_changed)) if weighed else count
        parts = [
            hypothesis.before_and_after(places, number, rng)
            for hypothesis, number in ((self.different, changed), (self.unchanged, count - changed))
            if number
        ]
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


class ChangeQuestion:
    """Same or different? What stays fixed while the answers come in."""

    judges_around_obstacles = False
    rule: Rule | None = None

    def __init__(self, setup: Setup, settings: Protocol) -> None:
        self.settings = settings
        self.reference, self.prior, self.domain = setup.reference, setup.prior, setup.domain
        self.obstacles = unreachable(setup)
        self.shifts = shift_prior(settings.rough_share, setup.domain.places, settings.rough_size)
        self.protocol_name = settings.name

    def assess(
        self, trials: Sequence[Trial], before: ChangePosterior | None = None
    ) -> ChangePosterior:
        """Fit both hypotheses."""
        answers = answers_of(trials, self.domain)
        unchanged = same(self.reference, answers)
        different = self._different(answers)
        log_different = different.log_evidence
        if self.settings.evidence == "running":
            log_different = self._running(trials, answers, before)
        return ChangePosterior(self, answers, unchanged, different, log_different)

    def _different(self, answers: Answers) -> Hypothesis | Shifted:
        """M_g: the paper's other field, or the reference's with its thresholds moved."""
        if self.settings.alternative == "shift":
            return shifted(self.reference, answers, self.shifts)
        return conjoint(self.reference, answers, self.settings, self.prior)

    def _running(
        self, trials: Sequence[Trial], answers: Answers, before: ChangePosterior | None
    ) -> float:
        """Log of the product of M_g's predictions, each answer from those before it."""
        if not trials:
            return 0.0
        if before is None:
            for number in range(len(trials)):
                before = self.assess(trials[:number], before)
        assert before is not None
        p = before.different.p_heard(answers.places[answers.place[-1:]], answers.intensity[-1:])
        heard = answers.answer[-1] == ep.HEARD
        return before.log_different + math.log(max(p[0, 0] if heard else 1.0 - p[0, 0], 1e-300))
