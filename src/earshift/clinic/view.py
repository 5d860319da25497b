"""What an exam says: thresholds of screen and reference within what can be played."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from earshift.engine import field
from earshift.engine.exam import (
    SAMPLES,
    Screen,
    thresholds_from_samples,
)
from earshift.engine.field import Threshold
from earshift.engine.stimulus import Audiogram

NORMAL_95 = 1.96  # standard deviations on either side of the middle that hold 95 %
_REFERENCE = 12  # a stream of chance apart from those of the engine, which are below ten


def within(threshold: Threshold, softest: float, loudest: float) -> Threshold:
    """The threshold with all that lies beyond these levels cut to them and said."""
    level, censored = threshold.level_db_hl, threshold.censored
    if level > loudest or (censored == "above" and level >= loudest):
        censored = "above"
    elif level < softest or (censored == "below" and level <= softest):
        censored = "below"
    cut = [
        min(max(value, softest), loudest)
        for value in (level, threshold.low_db_hl, threshold.high_db_hl)
    ]
    return replace(
        threshold, level_db_hl=cut[0], low_db_hl=cut[1], high_db_hl=cut[2], censored=censored
    )


def reference_thresholds(screen: Screen) -> list[Threshold]:
    """The reference's thresholds with their band; an audiogram's are as they were written down."""
    axis = screen.domain.smooth[0]
    frequencies = axis.values
    kept = screen.to_dict()["design"]["reference"]
    if kept["kind"] == "audiogram":
        return _as_written(Audiogram.from_dict(kept["data"]), frequencies)
    mean, cov = screen.reference_field.latent(np.array([[axis.to_model(f)] for f in frequencies]))
    draws = field.positive_slope_samples(
        mean, cov, [0], SAMPLES, np.random.default_rng((screen.seed, _REFERENCE))
    )
    return thresholds_from_samples(
        [(f,) for f in frequencies], -draws[:, 1:] / draws[:, :1], screen.domain
    )


def _as_written(audiogram: Audiogram, frequencies: Sequence[float]) -> list[Threshold]:
    """The numbers of an audiogram at these frequencies, with the interval of its own SD."""
    reach = NORMAL_95 * audiogram.sd_db
    known = {f: (level, None) for f, level in audiogram.thresholds_db_hl.items()}
    silent = {f: (level, "above") for f, level in audiogram.no_response_db_hl.items()}
    return [
        Threshold(f, level, level - reach, level + reach, censored)
        for f, (level, censored) in sorted((known | silent).items())
        if f in frequencies
    ]
