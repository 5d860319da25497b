"""`Prior`: what somebody expects of a psychometric test before the first answer.

The shipped hyperprior was learned from audiograms. On other axes than a tone's, people know their
own task better: where thresholds lie, how steep the answers are, how far thresholds move along the
smooth axes. Here that becomes a domain in the model's units and a hyperprior of the field.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from earshift.engine.checks import finite
from earshift.engine.domain import Domain
from earshift.engine.norms import Hyperprior
from earshift.engine.refusal import Refusal

SPREADS_A_STEP = 2.5  # a unit of the model's intensity, in spreads of an answer: the slope there
THRESHOLD_SHARE = 0.3  # of the range: SD of a threshold that may be anywhere in it
VARIATION_SHARE = 0.5  # of the threshold's SD: how far thresholds move along the smooth axes
WIDEST_SLOPE = 0.5  # relative SD of a Gaussian slope that is to stay positive
HELD = 0.1  # SD of a hyperparameter that is all but given, in log units


@dataclass(frozen=True)
class Prior:
    """What is expected of a test before the first answer, in the units of its axes.

    Whatever is left out follows from the axes. On a logarithmic intensity axis the threshold is in
    its unit and everything else in octaves. An exam with a prior puts the origin of its intensity
    axis at the expected threshold and the scale at 2.5 spreads, whatever the axis said.

    Args:
        threshold: the expected threshold; by default the origin of the intensity axis.
        threshold_sd: how far it may be off, as a standard deviation; by default 0.3 of the range.
        variation: how far thresholds differ along the smooth axes, as a standard deviation; by
            default half of `threshold_sd`. A domain without a smooth axis has none.
        spread: standard deviation of the psychometric function: the steepest slope is 0.4 divided
            by it. By default the scale of the intensity axis divided by 2.5.
        length: over how much of a smooth axis the threshold bends, in its unit (octaves on a
            logarithmic axis): one number, or one for each smooth axis; by default their scales.
        variation_factor: one standard deviation of the variation, as a factor above 1.
        spread_factor: one standard deviation of the spread, as a factor above 1.
        length_factor: one standard deviation of a length, as a factor above 1.
        guess: Beta(a, b) of a guess rate that is estimated, `Exam(guess="estimate")`.
        lapse: Beta(a, b) of a lapse rate that is estimated, `Exam(lapse="estimate")`.

    Raises:
        Refusal: for a number that is not finite, a spread, length or SD that is not positive, a
            factor of 1 or less, or a Beta without two positive numbers.

    Examples:
        >>> Prior(threshold=-30.0, threshold_sd=8.0, spread=3.0).spread
        3.0
    """

    threshold: float | None = None
    threshold_sd: float | None = None
    variation: float | None = None
    spread: float | None = None
    length: float | tuple[float, ...] | None = None
    variation_factor: float = 2.0
    spread_factor: float = 2.0
    length_factor: float = 2.0
    guess: tuple[float, float] = (1.0, 10.0)
    lapse: tuple[float, float] = (1.0, 10.0)

    def __post_init__(self) -> None:
        if self.threshold is not None:
            object.__setattr__(self, "threshold", finite(self.threshold, "prior threshold"))
        for name in ("threshold_sd", "variation", "spread"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _positive(getattr(self, name), name))
        if isinstance(self.length, Iterable) and not isinstance(self.length, str):
            lengths = tuple(_positive(one, "length") for one in self.length)
            object.__setattr__(self, "length", lengths)
        elif self.length is not None:
            object.__setattr__(self, "length", _positive(self.length, "length"))
        for name in ("variation_factor", "spread_factor", "length_factor"):
            factor = finite(getattr(self, name), f"prior {name}")
            if not factor > 1.0:
                raise Refusal(f"prior {name} must be above 1: one SD as a factor", got=factor)
            object.__setattr__(self, name, factor)
        for name in ("guess", "lapse"):
            object.__setattr__(self, name, _beta(getattr(self, name), name))

    def on(self, domain: Domain) -> Domain:
        """The domain in this prior's units: thresholds around 0, slopes around 2.5.

        Args:
            domain: whose candidates are asked.

        Returns:
            The same candidates with another origin and scale.

        Raises:
            Refusal: for another number of lengths than there are smooth axes.
        """
        axis = domain.intensity
        origin = axis.origin if self.threshold is None else self.threshold
        scale = axis.scale if self.spread is None else SPREADS_A_STEP * self.spread
        self._lengths(domain)
        return replace(domain, intensity=replace(axis, origin=origin, scale=scale))

    def _lengths(self, domain: Domain) -> list[float]:
        """Lengths of the smooth axes, in model units."""
        axes = domain.smooth
        if self.length is None:
            return [1.0] * len(axes)
        given = self.length if isinstance(self.length, tuple) else (self.length,) * len(axes)
        if len(given) != len(axes):
            raise Refusal(
                f"the prior has {len(given)} lengths and the domain {len(axes)} smooth axes",
                advice="give one number, or one for each smooth axis in their order",
            )
        return [length / axis.scale for length, axis in zip(given, axes, strict=True)]

    def in_model_units(self, domain: Domain) -> "ModelPrior":
        """The numbers for a domain that `on` gave.

        Args:
            domain: as `on` gave it.

        Returns:
            The prior as the model calculates with it.
        """
        axis = domain.intensity
        sd = THRESHOLD_SHARE * axis.span if self.threshold_sd is None else self.threshold_sd
        variation = VARIATION_SHARE * sd if self.variation is None else self.variation
        return ModelPrior(
            threshold_sd=sd / axis.scale,
            variation=variation / axis.scale,
            lengths=tuple(self._lengths(domain)),
            log_factors=(
                math.log(self.variation_factor),
                math.log(self.spread_factor),
                math.log(self.length_factor),
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain data.

        Returns:
            Plain values that JSON can hold; `from_dict` reads them back.
        """
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Prior":
        """A prior from `to_dict`'s data.

        Args:
            data: what `to_dict` gave.

        Returns:
            The prior that was written down.

        Raises:
            Refusal: for numbers that a prior cannot have.
        """
        return cls(**data)


@dataclass(frozen=True)
class ModelPrior:
    """A prior in the model's units, where the expected threshold is 0 and the slope 2.5.

    Attributes:
        threshold_sd: of the mean threshold.
        variation: SD of the thresholds around it, along the smooth axes.
        lengths: one for each smooth axis.
        log_factors: SDs of the logarithms of variation, spread and lengths.
    """

    threshold_sd: float
    variation: float
    lengths: tuple[float, ...]
    log_factors: tuple[float, float, float]

    def hyperprior(self) -> Hyperprior:
        """As a Gaussian over theta, with the slope's mean: what a search for its mode needs."""
        slope = SPREADS_A_STEP
        of_variation, of_spread, of_length = self.log_factors
        relative = min(math.sqrt(math.expm1(of_spread**2)), WIDEST_SLOPE)
        log_alpha = 2.0 * math.log(slope * relative)
        if self.lengths:
            sd_c, variation = slope * self.threshold_sd, self.variation
        else:  # one place: its offset is all there is
            sd_c, of_variation, variation = HELD, HELD, self.threshold_sd
        mean = (0.0, log_alpha, 2.0 * math.log(slope * variation), *map(math.log, self.lengths))
        sds = (sd_c, HELD, 2.0 * of_variation, *[of_length] * len(self.lengths))
        cov = tuple(
            tuple(sd**2 if row == column else 0.0 for column in range(len(sds)))
            for row, sd in enumerate(sds)
        )
        return Hyperprior(mean=mean, cov=cov, slope_mean=slope)


def _positive(value: object, name: str) -> float:
    number = finite(value, f"prior {name}")
    if not number > 0.0:
        raise Refusal(f"prior {name} must be positive", got=value)
    return number


def _beta(given: Any, name: str) -> tuple[float, float]:
    try:
        a, b = given
    except (TypeError, ValueError):
        raise Refusal(
            f"prior {name} is the two numbers of a Beta distribution", got=given
        ) from None
    return _positive(a, name), _positive(b, name)
