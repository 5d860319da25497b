"""`Protocol`: every choice that the paper leaves open, as a named setting (method.md)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earshift.engine.checks import check_rates, finite, whole
from earshift.engine.norms import READING_SD_DB, hyperprior
from earshift.engine.refusal import Refusal

Array = NDArray[np.float64]

OPTIONS: dict[str, tuple[str, ...]] = {
    "theta_g": ("per_rho", "shared", "fixed"),
    "rho_weights": ("prior", "posterior"),
    "evidence": ("plug_in", "laplace", "running"),
    "hyperprior_g": ("population", "reference"),
}


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
        strategy: by which the next tone is chosen, one of `choose.STRATEGIES`.
        bayes_factor: that decides, either way; above 1.
        prior_changed: probability of change before the first tone.
        guess: probability of "heard" without hearing, from 0 to below 0.5.
        lapse: probability of "missed" in spite of hearing, from 0 to below 0.5.
        max_tones: after which the screen is done, decided or not.
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
    strategy: str = "differential"
    bayes_factor: float = 100.0
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
        check_rates(self.guess, self.lapse)

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
