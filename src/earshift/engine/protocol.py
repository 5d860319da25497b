"""`Protocol`: every choice that the paper leaves open, as a named setting (method.md)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earshift.engine.checks import check_rates, finite, whole
from earshift.engine.norms import READING_SD_DB, hyperprior
from earshift.engine.refusal import Refusal
from earshift.engine.strategy import Strategy, name_of

Array = NDArray[np.float64]

OPTIONS: dict[str, tuple[str, ...]] = {
    "theta_g": ("per_rho", "shared", "fixed"),
    "rho_weights": ("prior", "posterior"),
    "evidence": ("plug_in", "laplace", "running"),
    "hyperprior_g": ("population", "reference"),
}
# Choices that 0.1.0 did not have. A design that was stored then lacks them and keeps their
# defaults, so these must stay what they are.
MODELS: dict[str, tuple[str, ...]] = {
    "alternative": ("conjoint", "shift"),
    "free_g": ("all", "mean"),
}
LATER = {"alternative": "conjoint", "free_g": "all", "rough_share": 0.25, "rough_size": 3.0}


@dataclass(frozen=True)
class Protocol:
    """How the change test is computed and when it ends. See docs/method.md for each choice.

    Attributes:
        name: of the settings; "custom" unless they are known ones.
        theta_g: "per_rho" (one MAP of the new field's hyperparameters for each correlation),
            "shared" (one for all) or "fixed" (the reference's, not refitted).
        rho_weights: of the correlations in M_g's prediction: "prior" or "posterior".
        evidence: of M_g: "plug_in" (at the MAP), "laplace" (over theta_g) or "running" (the
            product of the predictions of each answer from those before).
        hyperprior_g: centre of theta_g's hyperprior: the "population" or the "reference".
        prior_scale: factor on the standard deviations of theta_g's hyperprior.
        reading_sd_db: noise in dB of a reading, behind the population hyperprior.
        rho_points: how many correlations M_g is averaged over.
        rho_low: the lowest of them, from -1.
        rho_high: the highest of them, to 1.
        strategy: by which the next tone is chosen, one of `choose.STRATEGIES`, or a function of
            your own from an `Outlook` to a score for every candidate.
        bayes_factor: that decides, either way; above 1.
        prior_changed: probability of change before the first tone.
        guess: probability of "heard" without hearing, from 0 to 0.5.
        lapse: probability of "missed" in spite of hearing, from 0 to below 0.5.
        max_tones: after which the screen is done, decided or not.
        alternative: what a changed ear is: "conjoint" (the paper's M_g, another field that is
            correlated with the reference's) or "shift" (the reference's field with its thresholds
            moved; `shifted.py`). A shift has no theta_g and no correlations: the settings of these
            do not matter then.
        free_g: what is fitted of theta_g: "all", or the "mean" alone (the paper's equation at its
            word: one kernel for both exams).
        rough_share: of the shifts, the prior share of those that differ much from frequency to
            frequency, from 0 to below 1.
        rough_size: mean size of these, in units of the model's intensity (of a tone, tens of dB),
            from 0.

    Raises:
        Refusal: for a setting that is not known, or a value out of its range.

    Examples:
        >>> Protocol(guess=0.5, lapse=0.02, max_tones=40).guess
        0.5
    """

    name: str = "custom"
    theta_g: str = "per_rho"
    rho_weights: str = "posterior"
    evidence: str = "laplace"
    hyperprior_g: str = "reference"
    prior_scale: float = 1.0
    reading_sd_db: float = READING_SD_DB
    rho_points: int = 50
    rho_low: float = -1.0
    rho_high: float = 1.0
    strategy: str | Strategy = "differential"
    bayes_factor: float = 100.0
    prior_changed: float = 0.5
    guess: float = 0.0
    lapse: float = 0.0
    max_tones: int = 30
    alternative: str = "conjoint"
    free_g: str = "all"
    rough_share: float = 0.25
    rough_size: float = 3.0

    def __post_init__(self) -> None:
        for name, known in {**OPTIONS, **MODELS}.items():
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
            "bayes_factor", "prior_changed", "guess", "lapse", "rough_share",
            "rough_size",
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
        if not 0.0 <= self.rough_share < 1.0:
            raise Refusal(f"rough_share must be from 0 to below 1, got {self.rough_share!r}")
        if not self.rough_size >= 0.0:
            raise Refusal(f"rough_size must be at least 0, got {self.rough_size!r}")
        check_rates(self.guess, self.lapse)

    @property
    def rhos(self) -> Array:
        """The correlations that M_g is averaged over."""
        return np.linspace(self.rho_low, self.rho_high, self.rho_points)

    @property
    def coherent(self) -> bool:
        """Whether M_g's predictions are those of one model, fixed before the first tone.

        With a refitted theta_g, or correlations that keep their prior weight, they are not: what
        was said of an earlier answer is then no part of what is said of a later one.
        """
        fixed = self.theta_g == "fixed" and self.rho_weights == "posterior"
        return fixed or self.alternative == "shift"

    def to_dict(self) -> dict[str, Any]:
        """As plain data, without the later settings where they are at their defaults.

        Returns:
            Plain values that JSON can hold.
        """
        given = {**asdict(self), "strategy": name_of(self.strategy)}
        return {key: value for key, value in given.items() if LATER.get(key) != value}


_PAPER = Protocol(
    name="paper",
    theta_g="per_rho",
    rho_weights="prior",
    evidence="laplace",
    hyperprior_g="reference",
)
PROTOCOLS: dict[str, Protocol] = {
    "paper": _PAPER,
    # The hyperprior's width, which the paper does not give, decides how long "same" takes.
    "paper-vague": replace(_PAPER, name="paper-vague", prior_scale=4.0),
    "literal": replace(_PAPER, name="literal", evidence="running", free_g="mean"),
    # Chosen on real ears of the tuning half (`earshift study ears`), not on the paper's classes.
    "best": Protocol(name="best", alternative="shift", rough_share=0.15, rough_size=0.5),
    "best-0.1": Protocol(
        name="best-0.1",
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
