"""What the other ear might hear of a tone, and from which level on."""

import math

import numpy as np
from numpy.typing import NDArray

from earshift.engine.audiogram import Audiogram
from earshift.engine.domain import Domain
from earshift.engine.refusal import Refusal

Mask = NDArray[np.bool_]

# How much louder a tone must be than the other ear's threshold to be heard there, in dB.
INTERAURAL_DB = {"supra-aural": 40.0, "circumaural": 40.0, "insert": 55.0, "unknown": 40.0}


def crossing_level(other_ear: Audiogram | None, transducer: str, frequency_hz: float) -> float:
    """The level in dB HL from which the other ear might hear a tone; infinite if it is unknown.

    Between the audiogram's frequencies the threshold is taken from a line in octaves; beyond them
    it is not known and taken as 0 dB HL, or as the best one where that is lower. "No response"
    counts as a threshold at the level tried: it is higher.
    """
    if transducer not in INTERAURAL_DB:
        raise Refusal(f"transducer must be one of {', '.join(INTERAURAL_DB)}", got=transducer)
    if other_ear is None:
        return math.inf
    if not isinstance(other_ear, Audiogram):
        raise Refusal("other_ear must be an earshift.Audiogram or None", got=other_ear)
    levels = {f: t - other_ear.method_offset_db for f, t in other_ear.thresholds_db_hl.items()}
    known = sorted({**other_ear.no_response_db_hl, **levels}.items())
    octaves = [math.log2(f) for f, _ in known]
    unknown = min([0.0, *levels.values()])
    heard_at = np.interp(
        math.log2(frequency_hz),
        octaves,
        [level for _, level in known],
        left=unknown,
        right=unknown,
    )
    return float(heard_at) + INTERAURAL_DB[transducer]


def own_ear_only(domain: Domain, other_ear: Audiogram | None, transducer: str) -> Mask:
    """Which candidates the other ear cannot hear."""
    if other_ear is None:
        crossing_level(None, transducer, 1000.0)  # refuses an unknown transducer
        return np.ones(domain.shape, dtype=bool)
    if not domain.of_tones:
        raise Refusal("the other ear's thresholds need a domain of tones")
    limit = [crossing_level(other_ear, transducer, f) for f in domain.smooth[0].values]
    mask = np.array(domain.intensity.values)[None, :] < np.array(limit)[:, None]
    if not mask.any():
        raise Refusal("the other ear might hear every tone of the domain: nothing can be asked")
    return np.asarray(mask)
