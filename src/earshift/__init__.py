"""earshift: has this ear's hearing shifted from its reference exam?

The names below load when first used, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.2.0"

_HOMES = {
    "Tone": "engine.tone",
    "Trial": "engine.tone",
    "Stimulus": "engine.tone",
    "Domain": "engine.domain",
    "Axis": "engine.domain",
    "Limits": "engine.limits",
    "Audiogram": "engine.audiogram",
    "Norm": "engine.norms",
    "population_norm": "engine.norms",
    "Protocol": "engine.protocol",
    "Prior": "engine.prior",
    "Outlook": "engine.choose",
    "Rule": "engine.rules",
    "Criterion": "engine.rules",
    "ThresholdRule": "engine.rules",
    "RuleSettings": "engine.rule_settings",
    "NotchSettings": "engine.rule_settings",
    "Exam": "engine.exam",
    "Screen": "engine.screen",
    "Verdict": "engine.verdict",
    "PersonVerdict": "engine.verdict",
    "Threshold": "engine.thresholds",
    "PlaceThreshold": "engine.thresholds",
    "Shift": "engine.verdict",
    "PlaceShift": "engine.verdict",
    "Psychometric": "engine.psychometric",
    "Estimate": "engine.psychometric",
    "GoodnessOfFit": "engine.psychometric",
    "Refusal": "engine.refusal",
    "Handler": "interop.handler",
    "Listener": "simulate.listener",
}

__all__ = [
    "Audiogram",
    "Axis",
    "Criterion",
    "Domain",
    "Estimate",
    "Exam",
    "GoodnessOfFit",
    "Handler",
    "Limits",
    "Listener",
    "Norm",
    "NotchSettings",
    "Outlook",
    "PersonVerdict",
    "PlaceShift",
    "PlaceThreshold",
    "Prior",
    "Protocol",
    "Psychometric",
    "Refusal",
    "Rule",
    "RuleSettings",
    "Screen",
    "Shift",
    "Stimulus",
    "Threshold",
    "ThresholdRule",
    "Tone",
    "Trial",
    "Verdict",
    "__version__",
    "population_norm",
]

if TYPE_CHECKING:
    from earshift.engine.audiogram import Audiogram
    from earshift.engine.choose import Outlook
    from earshift.engine.domain import Axis, Domain
    from earshift.engine.exam import Exam
    from earshift.engine.limits import Limits
    from earshift.engine.norms import Norm, population_norm
    from earshift.engine.prior import Prior
    from earshift.engine.protocol import Protocol
    from earshift.engine.psychometric import Estimate, GoodnessOfFit, Psychometric
    from earshift.engine.refusal import Refusal
    from earshift.engine.rule_settings import NotchSettings, RuleSettings
    from earshift.engine.rules import Criterion, Rule, ThresholdRule
    from earshift.engine.screen import Screen
    from earshift.engine.thresholds import PlaceThreshold, Threshold
    from earshift.engine.tone import Stimulus, Tone, Trial
    from earshift.engine.verdict import PersonVerdict, PlaceShift, Shift, Verdict
    from earshift.interop.handler import Handler
    from earshift.simulate.listener import Listener
else:  # a type checker that saw this would take every misspelt name for one that may exist

    def __getattr__(name):
        if name in _HOMES:
            return getattr(import_module(f"earshift.{_HOMES[name]}"), name)
        raise AttributeError(f"module 'earshift' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
