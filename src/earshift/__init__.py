"""earshift: has this ear's hearing shifted from its reference exam?

The names below load when first used, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Tone": "stimulus",
    "Trial": "stimulus",
    "Stimulus": "stimulus",
    "Domain": "stimulus",
    "Axis": "stimulus",
    "Limits": "stimulus",
    "Audiogram": "stimulus",
    "Norm": "norms",
    "population_norm": "norms",
    "Protocol": "change",
    "Rule": "rules",
    "Criterion": "rules",
    "RuleSettings": "shift",
    "NotchSettings": "notch",
    "Exam": "exam",
    "Screen": "exam",
    "Verdict": "exam",
    "PersonVerdict": "bothears",
    "Handler": "handler",
    "Listener": "listener",
}

__all__ = [
    "Audiogram",
    "Axis",
    "Criterion",
    "Domain",
    "Exam",
    "Handler",
    "Limits",
    "Listener",
    "Norm",
    "NotchSettings",
    "PersonVerdict",
    "Protocol",
    "Rule",
    "RuleSettings",
    "Screen",
    "Stimulus",
    "Tone",
    "Trial",
    "Verdict",
    "__version__",
    "population_norm",
]

if TYPE_CHECKING:
    from earshift.bothears import PersonVerdict
    from earshift.change import Protocol
    from earshift.exam import Exam, Screen, Verdict
    from earshift.handler import Handler
    from earshift.listener import Listener
    from earshift.norms import Norm, population_norm
    from earshift.notch import NotchSettings
    from earshift.rules import Criterion, Rule
    from earshift.shift import RuleSettings
    from earshift.stimulus import Audiogram, Axis, Domain, Limits, Stimulus, Tone, Trial


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"earshift.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'earshift' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
