"""What a screen compares with: an earlier exam, an audiogram, or a population's norm."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from earshift.engine.audiogram import Audiogram
from earshift.engine.clinical import earlier_of, levels_at, nodes_for
from earshift.engine.domain import Domain
from earshift.engine.exam import ClinicalExam, Exam
from earshift.engine.norms import Hyperprior, Norm
from earshift.engine.question import levels_of
from earshift.engine.refusal import Refusal
from earshift.engine.values import EARS
from earshift.engine.views import places_of

if TYPE_CHECKING:  # a field loads its compiled kernels, which not every screen needs
    from earshift.engine.field import Field

Array = NDArray[np.float64]

Reference = Exam | Audiogram | Norm
_REFERENCES: dict[str, type[Exam] | type[Audiogram] | type[Norm]] = {
    "exam": Exam,
    "audiogram": Audiogram,
    "norm": Norm,
}


def reference_kind(reference: object) -> str:
    """exam, audiogram or norm; a refusal of anything else."""
    for kind, known in _REFERENCES.items():
        if isinstance(reference, known):
            return kind
    raise Refusal(
        f"reference must be an earshift Exam, Audiogram or Norm, got {type(reference).__name__}"
        '; without one, only hypotheses="notch" can be asked'
    )


def reference_to_dict(reference: Reference) -> dict[str, Any]:
    """A reference's kind and data, as a screen's design keeps it."""
    return {"kind": reference_kind(reference), "data": reference.to_dict()}


def reference_from_dict(data: Mapping[str, Any]) -> Reference:
    """A reference from its kind and data, as a screen's design keeps it."""
    if data["kind"] not in _REFERENCES:
        raise Refusal(f"a reference is one of {', '.join(_REFERENCES)}", got=data["kind"])
    return _REFERENCES[data["kind"]].from_dict(data["data"])


def reference_domain(reference: Reference | None) -> str | Domain:
    """The domain of a screen that compares with this, unless another is given."""
    return reference.domain if isinstance(reference, Exam) else "fine"


def reference_field(
    reference: Reference, domain: Domain, prior: Hyperprior, guess: float, lapse: float
) -> "Field":
    """The reference as a field, seen with a screen's domain, prior and listener."""
    from earshift.engine.field import from_audiogram, from_norm

    if isinstance(reference, Exam):
        if not reference.trials:
            raise Refusal(
                "the reference exam has no trials: run it first, or give an audiogram or a norm"
            )
        if reference.domain.names != domain.names:
            raise Refusal(
                f"the reference exam has the axes {', '.join(reference.domain.names)}, the screen "
                f"{', '.join(domain.names)}: they must be the same"
            )
        return reference.refitted(domain, prior, guess, lapse)
    if not domain.of_tones:
        raise Refusal(
            "an audiogram or a norm is a reference for tones alone; on other axes give an exam"
        )
    if isinstance(reference, Audiogram):
        return from_audiogram(reference, domain, guess, lapse)
    return from_norm(reference, domain, guess, lapse)


def measured_hz(reference: Reference) -> frozenset[float] | None:
    """The frequencies at which a reference has a threshold; None for all of them.

    An exam's field has one everywhere, unless its device left some frequencies out.
    """
    if isinstance(reference, Audiogram):
        return frozenset(reference.thresholds_db_hl)
    if isinstance(reference, Norm):
        return frozenset(reference.frequencies_hz)
    limits = reference.limits
    if limits is None or limits.device is None:
        return None
    frequencies = reference.domain.smooth[0].values
    reach = limits.reach(reference.domain)
    return frozenset(f for f, levels in zip(frequencies, reach, strict=True) if levels is not None)


def tested_at(reference: Reference) -> frozenset[float]:
    """Where along its smooth axis a reference was measured; a population's norm nowhere."""
    if isinstance(reference, Audiogram):
        return frozenset({*reference.thresholds_db_hl, *reference.no_response_db_hl})
    if isinstance(reference, Norm):
        return frozenset()
    return places_of(reference.trials, reference.domain, reference.ear)


def earlier_levels(reference: Reference, field: "Field", domain: Domain) -> Array | None:
    """This ear's earlier thresholds at all places of the domain, in the unit of its levels.

    nan beyond the measured frequencies; None where the reference is not this ear's.
    """
    if isinstance(reference, Norm):
        return None  # other people's
    return _where_measured(levels_of(field, domain.places, domain), reference, domain)


def known_levels(reference: Reference, domain: Domain) -> Array | None:
    """The same as the model of persons knows them."""
    if isinstance(reference, Norm):
        return None  # other people's
    earlier = earlier_of(reference, nodes_for(()), domain)
    return _where_measured(levels_at(earlier, domain.smooth[0].values), reference, domain)


def _where_measured(levels: Array, reference: Reference, domain: Domain) -> Array:
    if isinstance(reference, Audiogram):
        measured = [*reference.thresholds_db_hl, *reference.no_response_db_hl]
        frequencies = np.array(domain.smooth[0].values)
        levels[(frequencies < min(measured)) | (frequencies > max(measured))] = np.nan
    return levels


def audiogram_of(reference: Exam | Audiogram) -> Audiogram:
    """The thresholds of a reference as an audiogram: for what the other ear might hear."""
    if isinstance(reference, Audiogram):
        return reference
    if isinstance(reference, ClinicalExam) and reference.trials:  # by what a screen folds anyway
        known = reference.earlier(nodes_for(()))
        low, high = reference.domain.intensity.values[0], reference.domain.intensity.values[-1]
        level = dict(zip(known.nodes_hz, known.medians()[0].tolist(), strict=True))
        frequencies = reference.domain.smooth[0].values
        within = {f: t for f, t in level.items() if frequencies[0] <= f <= frequencies[-1]}
        return Audiogram(
            {f: max(t, low) for f, t in within.items() if t <= high},
            no_response_db_hl={f: high for f, t in within.items() if t > high},
        )
    levels = reference.thresholds()
    heard = {t.frequency_hz: t.level_db_hl for t in levels if t.censored != "above"}
    beyond = {t.frequency_hz: t.level_db_hl for t in levels if t.censored == "above"}
    return Audiogram(heard, no_response_db_hl=beyond)


def references_of_both(given: object) -> dict[str, Reference]:
    """Each ear's reference, from a mapping of the ears to theirs or an exam of both."""
    if isinstance(given, Exam) and given.ears == "both":
        return {ear: given.of(ear) for ear in EARS}
    if not isinstance(given, Mapping) or set(given) != set(EARS):
        what = sorted(map(str, given)) if isinstance(given, Mapping) else type(given).__name__
        raise Refusal(
            "a screen of both ears needs a reference that maps 'right' and 'left' to theirs, or an "
            f"exam of both ears; got {what}"
        )
    return {ear: _reference_of(given[ear], ear) for ear in EARS}


def _reference_of(given: Reference, ear: str) -> Reference:
    """The reference itself if it can be this ear's."""
    reference_kind(given)  # refuses what is none
    if not isinstance(given, Exam):
        return given
    if given.ears == "both":
        if given.ear not in (None, ear):
            raise Refusal(f"the {given.ear} ear's exam was given as the {ear} ear's reference")
        return given.of(ear)
    if any(trial.tone.ear not in (None, ear) for trial in given.trials):
        raise Refusal(f"the {ear} ear's reference has tones of the other ear")
    return given


def heard_beside(reference: Reference | None) -> Audiogram | None:
    """The other ear's thresholds, as its reference knows them."""
    # A population's thresholds say too little of what this person might hear.
    if reference is None or isinstance(reference, Norm):
        return None
    return audiogram_of(reference)
