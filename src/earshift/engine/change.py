"""The two hypotheses: nothing changed (M_f) or another field explains the new exam (M_g).

Method.md, sections 4 and 5. Both condition on the reference field once and then run EP on the new
tones only; `Assessment` holds what is left: the evidences and, for any tone, what each hypothesis
expects. Every choice that the paper leaves open is a named setting of `Protocol`.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from earshift.engine import ep, kernels
from earshift.engine.checks import finite, whole
from earshift.engine.field import (
    Answers,
    Field,
    add_p_heard,
    at,
    evidence,
    latent_grid,
    log_posterior,
    maximise,
    moments_on_grid,
    positive_slope_samples,
)
from earshift.engine.norms import READING_SD_DB, Hyperprior, hyperprior
from earshift.engine.refusal import Refusal

Array = NDArray[np.float64]

HESSIAN_STEP = 2e-3  # in the hyperprior's standard deviations
HESSIAN_TOLERANCE = 1e-6  # of EP, for these differences
EIGENVALUE_FLOOR = 0.1  # of the whitened Hessian; the hyperprior alone gives 1

OPTIONS: dict[str, tuple[str, ...]] = {
    "theta_g": ("per_rho", "shared", "fixed"),
    "rho_weights": ("prior", "posterior"),
    "evidence": ("plug_in", "laplace", "running"),
    "hyperprior_g": ("population", "reference"),
}


@dataclass(frozen=True)
class Protocol:
    """How the change test is computed and when it ends. See docs/method.md for each choice."""

    name: str = "custom"
    theta_g: str = "per_rho"  # one MAP per correlation, one for all, or not refitted
    rho_weights: str = "posterior"  # of the correlations in M_g's prediction
    evidence: str = "laplace"  # of M_g: plug-in MAP, Laplace over theta_g, running product
    hyperprior_g: str = "reference"  # centre of theta_g's hyperprior: population or theta_f
    prior_scale: float = 1.0  # of the SDs of theta_g's hyperprior
    reading_sd_db: float = READING_SD_DB  # noise of a reading behind the population hyperprior
    rho_points: int = 50
    rho_low: float = -1.0
    rho_high: float = 1.0
    strategy: str = "differential"
    bayes_factor: float = 100.0  # either way
    prior_changed: float = 0.5
    guess: float = 0.0
    lapse: float = 0.0
    max_tones: int = 30

    def __post_init__(self) -> None:
        for name, known in OPTIONS.items():
            if getattr(self, name) not in known:
                raise Refusal(
                    f"protocol setting {name} must be one of {', '.join(known)}, "
                    f"got {getattr(self, name)!r}"
                )
        # Stored as plain numbers, so that a numpy number given here goes through JSON.
        for name in ("rho_points", "max_tones"):
            object.__setattr__(self, name, whole(getattr(self, name), name, 1))
        for name in (
            "prior_scale", "reading_sd_db", "rho_low", "rho_high",
            "bayes_factor", "prior_changed", "guess", "lapse",
        ):  # fmt: skip
            object.__setattr__(self, name, finite(getattr(self, name), name))
        if not -1.0 <= self.rho_low <= self.rho_high <= 1.0:
            raise Refusal(
                "rho_low and rho_high must satisfy -1 <= low <= high <= 1, "
                f"got {self.rho_low}, {self.rho_high}"
            )
        if not self.prior_scale > 0.0:
            raise Refusal(f"prior_scale must be positive, got {self.prior_scale!r}")
        hyperprior(reading_sd_db=self.reading_sd_db)  # refuses what does not exist
        if not self.bayes_factor > 1.0:
            raise Refusal(f"bayes_factor must be above 1, got {self.bayes_factor!r}")
        if not 0.0 < self.prior_changed < 1.0:
            raise Refusal(
                f"prior_changed must lie between 0 and 1, both excluded, got {self.prior_changed!r}"
            )
        ep.check_rates(self.guess, self.lapse)

    @property
    def rhos(self) -> Array:
        """The correlations that M_g is averaged over."""
        return np.linspace(self.rho_low, self.rho_high, self.rho_points)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


PROTOCOLS: dict[str, Protocol] = {
    "paper": Protocol(
        name="paper",
        theta_g="per_rho",
        rho_weights="prior",
        evidence="laplace",
        hyperprior_g="reference",
    ),
    # Chosen on real ears of the tuning half (`earshift study ears`), not on the paper's classes.
    "best": Protocol(
        name="best",
        theta_g="shared",
        rho_weights="posterior",
        evidence="laplace",
        hyperprior_g="reference",
        rho_points=10,
        rho_low=-0.5,
        rho_high=0.7,
    ),
}


def as_protocol(protocol: "str | Protocol | Mapping[str, Any]") -> Protocol:
    """A Protocol from itself, a known name or a mapping of settings."""
    if isinstance(protocol, Protocol):
        return protocol
    if isinstance(protocol, Mapping):
        try:
            return Protocol(**protocol)
        except TypeError as error:
            raise Refusal(f"unknown protocol setting: {error}") from None
    if not isinstance(protocol, str) or protocol not in PROTOCOLS:
        raise Refusal(f"unknown protocol {protocol!r}; known: {', '.join(PROTOCOLS)}")
    return PROTOCOLS[protocol]


@njit(cache=True, nogil=True, error_model="numpy")
def curvature(u, rhos, centre, chol, slope_mean, theta_f, b_f, G_f, gaps_ref, gaps,
              place, x, y, gauss_tau, guess, lapse, tau, nu, H):  # fmt: skip
    """Minus the Hessian of `log_posterior` at u, by differences of the gradient, into H."""
    k = u.size
    base = np.zeros(k)
    for column in range(k + 1):
        moved = u.copy()
        if column > 0:
            moved[column - 1] += HESSIAN_STEP
        _, grad = log_posterior(
            moved, rhos, centre, chol, slope_mean, theta_f, b_f, G_f, gaps_ref, gaps,
            place, x, y, gauss_tau, guess, lapse, tau, nu, HESSIAN_TOLERANCE,
        )  # fmt: skip
        for q in range(k):
            if column == 0:
                base[q] = grad[q]
            else:
                H[column - 1, q] = (base[q] - grad[q]) / HESSIAN_STEP


@njit(cache=True, nogil=True, error_model="numpy")
def fit_conjoint(refit, laplace, rhos, centre, chol, slope_mean, theta_f, b_f, G_f,
                 gaps_ref, gaps, place, x, y, gauss_tau, guess, lapse):  # fmt: skip
    """Fit M_g at every correlation. refit: 0 not at all, 1 one theta per rho, 2 one for all.

    Returns u (J, k), the log evidence at it (J), EP's b (J, d) and G (J, d, d), the whitened
    Hessians (J, k, k; zero unless laplace), where the mode was found and where EP has a fixed
    point. What is shared by all rho stands in the first row and is repeated in the others.
    """
    n_rho, k, d, n = rhos.size, centre.size, gaps.shape[1] + 1, x.size
    us = np.zeros((n_rho, k))
    log_Z = np.empty(n_rho)
    bs = np.empty((n_rho, d))
    Gs = np.empty((n_rho, d, d))
    hessians = np.zeros((n_rho, k, k))
    tau = np.zeros((n_rho, n))
    nu = np.zeros((n_rho, n))
    H = np.eye(k)
    found = np.ones(n_rho, np.bool_)
    fixed = np.ones(n_rho, np.bool_)
    streak = 0  # neighbours in a row whose mode was found
    for j in range(n_rho):
        first, last = (0, n_rho) if refit == 2 else (j, j + 1)
        if refit == 1 or (refit == 2 and j == 0):
            warm = streak >= 2
            while True:
                if warm:
                    # From the neighbours' modes, curvature and sites: still the trials alone.
                    us[j] = 2.0 * us[j - 1] - us[j - 2]
                    tau[j] = tau[j - 1]
                    nu[j] = nu[j - 1]
                else:
                    us[j] = 0.0
                    H[:, :] = 0.0
                    for p in range(k):
                        H[p, p] = 1.0
                    tau[first:last] = 0.0
                    nu[first:last] = 0.0
                found[j] = maximise(
                    us[j], H, rhos[first:last], centre, chol, slope_mean, theta_f, b_f, G_f,
                    gaps_ref, gaps, place, x, y, gauss_tau, guess, lapse,
                    tau[first:last], nu[first:last],
                )  # fmt: skip
                if found[j] or not warm:
                    break
                warm = False
            streak = streak + 1 if found[j] else 0
            if laplace:
                curvature(
                    us[j], rhos[first:last], centre, chol, slope_mean, theta_f, b_f, G_f,
                    gaps_ref, gaps, place, x, y, gauss_tau, guess, lapse,
                    tau[first:last], nu[first:last], hessians[j],
                )  # fmt: skip
        elif refit == 2:
            us[j] = us[0]
            hessians[j] = hessians[0]
            found[j] = found[0]
        value, _, b, G, ok = evidence(
            at(centre, chol, us[j]), rhos[j], slope_mean, theta_f, b_f, G_f, gaps_ref, gaps,
            place, x, y, gauss_tau, guess, lapse, tau[j], nu[j], ep.TOLERANCE,
        )  # fmt: skip
        log_Z[j] = value
        bs[j] = b
        Gs[j] = G
        fixed[j] = ok
    return us, log_Z, bs, Gs, hessians, found, fixed


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


@njit(cache=True, nogil=True, error_model="numpy")
def mixture_p_heard(weights, thetas, rhos, slope_mean, theta_f, b_f, G_f, gaps_ref_grid,
                    gaps_ref_used, gaps_grid_used, bs, Gs, intensity, guess, lapse):  # fmt: skip
    """P(heard) on the grid, averaged over the correlations."""
    out = np.zeros((gaps_grid_used.shape[1], intensity.size))
    for j in range(weights.size):
        if weights[j] > 0.0:
            mean, cov_w, var = latent_grid(
                thetas[j], rhos[j], slope_mean, theta_f, b_f, G_f,
                gaps_ref_grid, gaps_ref_used, gaps_grid_used, bs[j], Gs[j],
            )  # fmt: skip
            mu, s = moments_on_grid(mean, cov_w, var, intensity)
            add_p_heard(mu, s, guess, lapse, weights[j], out)
    return out


@dataclass(frozen=True)
class Hypothesis:
    """One hypothesis about the new exam, fitted: a mixture over correlations (M_f has just one)."""

    reference: Field
    answers: Answers
    rhos: Array
    weights: Array  # in the prediction
    thetas: Array
    bs: Array
    Gs: Array
    log_evidence: float
    converged: bool
    floored: bool = False

    def p_heard(self, places: Array, intensity: Array) -> Array:
        """P(heard) on places x intensities, in model units."""
        reference = self.reference
        return mixture_p_heard(
            self.weights, self.thetas, self.rhos, reference.slope_mean,
            reference.theta, reference.b, reference.G,
            kernels.squared_gaps(reference.places, places),
            kernels.squared_gaps(reference.places, self.answers.places),
            kernels.squared_gaps(places, self.answers.places),
            self.bs, self.Gs, intensity, reference.guess, reference.lapse,
        )  # fmt: skip

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
        mean = mean + to_places.T @ old.b
        cov = prior - to_places.T @ old.G @ to_places
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
        b, G = self.bs[component], self.Gs[component]
        return mean + link @ b, cov - link @ G @ link.T

    def before_and_after(
        self, places: Array, count: int, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Samples of the old and the new thresholds together, in model units."""
        shares = rng.multinomial(count, self.weights / self.weights.sum())
        d = places.shape[0] + 1
        old, new = [], []
        for component in np.nonzero(shares)[0]:
            mean, cov = self.latent_pair(int(component), places)
            draws = positive_slope_samples(mean, cov, [0, d], int(shares[component]), rng)
            old.append(-draws[:, 1:d] / draws[:, :1])
            new.append(-draws[:, d + 1 :] / draws[:, d : d + 1])
        return np.concatenate(old), np.concatenate(new)


def same(reference: Field, answers: Answers) -> Hypothesis:
    """M_f: the new answers come from the reference field itself, its hyperparameters fixed."""
    gaps_ref = kernels.squared_gaps(reference.places, answers.places)
    gaps = kernels.squared_gaps(answers.places, answers.places)
    n = answers.count
    log_Z, _, b, G, ok = evidence(
        reference.theta, 1.0, reference.slope_mean, reference.theta, reference.b, reference.G,
        gaps_ref, gaps, answers.place, answers.intensity, answers.answer, answers.gauss_tau,
        reference.guess, reference.lapse, np.zeros(n), np.zeros(n), ep.TOLERANCE,
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
    product is a matter of the order of the trials and is kept by `ModelQuestion`.
    """
    if protocol.hyperprior_g == "reference":
        prior = prior.centred_on(reference.theta)
    if protocol.prior_scale != 1.0:
        prior = prior.scaled(protocol.prior_scale)
    centre, chol = prior.whitened(answers.places.shape[1])
    rhos = protocol.rhos
    n = answers.count
    refit = 0 if n == 0 else {"fixed": 0, "per_rho": 1, "shared": 2}[protocol.theta_g]
    laplace = protocol.evidence == "laplace" and refit > 0
    with ep.compiling("screen"):
        us, log_Z, bs, Gs, hessians, found, fixed = fit_conjoint(
            refit, laplace, rhos, centre, chol,
            reference.slope_mean, reference.theta, reference.b, reference.G,
            kernels.squared_gaps(reference.places, answers.places),
            kernels.squared_gaps(answers.places, answers.places),
            answers.place, answers.intensity, answers.answer, answers.gauss_tau,
            reference.guess, reference.lapse,
        )  # fmt: skip
    floored = False
    if laplace:
        terms, floored = laplace_terms(us, hessians)
        log_Z = log_Z + terms
    log_Z = np.where(np.isfinite(log_Z), log_Z, -np.inf)
    rough = np.exp(log_Z - max(log_Z.max(), -1e300))
    # With lapses EP may have no fixed point at a correlation that the answers all but refute; what
    # it returns there is no evidence, and the quadrature goes over the others. Such correlations,
    # and modes not found, are only reported if they might have mattered.
    doubtful = rough[~(found & fixed)].sum() / max(rough.sum(), 1e-300)
    log_Z = np.where(fixed, log_Z, -np.inf)
    if fixed.any():
        top = log_Z.max()
        mass = np.exp(log_Z - top)
        log_evidence = float(top + np.log(mass.sum() / fixed.sum()))
        uniform = fixed / fixed.sum()
    else:
        mass = uniform = np.full(rhos.size, 1.0 / rhos.size)
        log_evidence = -math.inf
    return Hypothesis(
        reference=reference,
        answers=answers,
        rhos=rhos,
        weights=uniform if protocol.rho_weights == "prior" else mass / mass.sum(),
        thetas=centre + us @ chol.T,
        bs=bs,
        Gs=Gs,
        log_evidence=log_evidence,
        converged=bool(fixed.any() and doubtful < 0.01),
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
class ModelState:
    """Both hypotheses after some answers."""

    protocol: Protocol
    answers: Answers
    unchanged: Hypothesis
    different: Hypothesis
    log_different: float

    @property
    def converged(self) -> bool:
        return self.unchanged.converged and self.different.converged

    @property
    def log_bf(self) -> float:
        """Log evidence of different over same."""
        if not (self.unchanged.converged and math.isfinite(self.log_different)):
            return 0.0  # no fixed point, no evidence; `converged` says so
        return self.log_different - self.unchanged.log_evidence

    @property
    def p_changed(self) -> float:
        return posterior(self.log_bf, self.protocol.prior_changed)

    def tied(self, other: "ModelState", alike_share: float) -> "ModelState":
        """This ear's evidence when the other ear of the person may have changed alike.

        With probability `alike_share` both ears changed or neither did, else each for itself; what
        the other ear's answers then say about this ear counts as evidence.
        """
        prior = self.protocol.prior_changed
        either = np.logaddexp(math.log(prior) + other.log_bf, math.log1p(-prior))
        with np.errstate(divide="ignore"):  # a share of 0 or 1 is fine
            apart, alike = np.log1p(-alike_share) + either, np.log(alike_share)
        told = np.logaddexp(apart, alike + other.log_bf) - np.logaddexp(apart, alike)
        return replace(self, log_different=self.log_different + float(told))

    @property
    def decision(self) -> str:
        limit = math.log(self.protocol.bayes_factor)
        if self.log_bf >= limit:
            return "changed"
        return "unchanged" if self.log_bf <= -limit else "inconclusive"

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


@dataclass(frozen=True)
class ModelQuestion:
    """Same or different? What stays fixed while the answers come in."""

    reference: Field
    protocol: Protocol
    prior: Hyperprior

    def assess(self, answers: Answers, before: "ModelState | None" = None) -> ModelState:
        """Fit both hypotheses. The running product needs the state before the last answer."""
        unchanged = same(self.reference, answers)
        different = conjoint(self.reference, answers, self.protocol, self.prior)
        log_different = different.log_evidence
        if self.protocol.evidence == "running":
            log_different = 0.0
            if before is not None:
                p = before.different.p_heard(
                    answers.places[answers.place[-1:]], answers.intensity[-1:]
                )[0, 0]
                heard = answers.answer[-1] == ep.HEARD
                log_different = before.log_different + math.log(
                    max(p if heard else 1.0 - p, 1e-300)
                )
        return ModelState(self.protocol, answers, unchanged, different, log_different)
