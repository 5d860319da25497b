"""What stands in a question's way: frequencies at which nothing can be said, and why."""

import numpy as np

from earshift.engine.cross_hearing import crossing_level
from earshift.engine.question import Array, Circumstances
from earshift.engine.rules import Rule

SMALL_CHANGE_DB = 10.0  # a smaller one need not be found for "unchanged"


def unreachable(setup: Circumstances) -> dict[float, str]:
    """Frequencies at which the limits let nothing be heard even by an unchanged ear, and why."""
    if setup.reference_levels is None or setup.limits is None:
        return {}
    unit = setup.domain.intensity.unit
    found = {}
    for f, level, reach in zip(
        setup.domain.smooth[0].values,
        setup.reference_levels,
        setup.limits.reach(setup.domain),
        strict=True,
    ):
        if reach is None:
            found[f] = "the device does not play it"
        elif level > reach[1]:
            found[f] = f"the reference lies above the loudest tone, {reach[1]:g} {unit}"
        elif level + SMALL_CHANGE_DB < reach[0]:
            found[f] = f"the device plays nothing softer than {reach[0]:g} {unit}"
    return found


def unjudgeable(setup: Circumstances, rule: Rule, levels: Array) -> dict[float, str]:
    """The rule's frequencies at which nothing can be said, and why.

    `levels` are those that the rule's dB are counted from, in the unit of the domain's levels: the
    reference's thresholds, or zeros for limits on thresholds.
    """
    found: dict[float, str] = {}
    known = setup.measured_hz
    axis = setup.domain.smooth[0]
    frequencies = np.array([axis.check(f) for f in rule.frequencies_hz])
    unit = setup.domain.intensity.unit
    for f, level, softest, top in zip(
        rule.frequencies_hz, levels, *setup.range_at(frequencies), strict=True
    ):
        needed = max(c.at_least_db for c in rule.criteria if f in c.frequencies_hz)
        if rule.better:
            needed = -needed
        crossing = crossing_level(setup.other_ear, setup.transducer, f)
        if known is not None and f not in known:
            found[f] = "the reference has no threshold there"
        elif not softest <= top:
            found[f] = "the device does not play it"
        elif level + needed > top:
            found[f] = f"a shift of {needed:g} dB would need tones above {top:g} {unit}"
        elif level + needed < softest:
            found[f] = f"the device plays nothing softer than {softest:g} {unit}"
        elif level + needed >= crossing:
            found[f] = "the other ear might hear the tones"
    return found


def unplayable(setup: Circumstances, low_hz: float, high_hz: float) -> dict[float, str]:
    """Frequencies between these two at which nothing can be played."""
    if not setup.domain.of_tones:
        return {}
    frequencies = np.array(setup.domain.smooth[0].values)
    softest, loudest = setup.range_at(frequencies)
    return {
        float(f): "the device does not play it"
        for f, low, high in zip(frequencies, softest, loudest, strict=True)
        if low_hz <= f <= high_hz and not low <= high
    }
