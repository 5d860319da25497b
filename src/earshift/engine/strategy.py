"""Strategies of the user's own: functions from an `Outlook` to a score for every candidate."""

from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

Strategy = Callable[[Any], ArrayLike]  # from a `choose.Outlook`

OWN = "own: "  # before the name of a function, in a stored design


def name_of(strategy: str | Strategy) -> str:
    """As a design keeps it: the name alone, for a function cannot be stored."""
    if isinstance(strategy, str):
        return strategy
    return OWN + str(getattr(strategy, "__name__", type(strategy).__name__))


def named_own(strategy: Any) -> bool:
    """Whether this stands for a function that was not stored."""
    return isinstance(strategy, str) and strategy.startswith(OWN)
