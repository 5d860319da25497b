"""A result in plain words for the person whose ear it is: what was found, what it means, what next.

How sure it is stands there as a natural frequency ("about 1 in 50"), which people read more surely
than a probability. Worked out from the stored result alone.
"""

from dataclasses import dataclass

from earshift.engine.amount import in_khz
from earshift.engine.rules import ThresholdRule
from earshift.report.text import Data, mapping, number, numbers
from earshift.report.words import ENGLISH, Words

ONE_IN = (2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 70, 100, 200, 300, 500, 1000)


@dataclass(frozen=True)
class Plain:
    """What somebody is told of one of their ears."""

    headline: str
    found: str
    """How much, and at what pitch; empty where there is no number worth telling."""
    sure: str
    """How many such ears are called wrongly; empty where nothing was called."""
    means: str
    next_step: str


def plain_words(shown: Data, ear: str, words: Words = ENGLISH) -> Plain:
    """The words for a stored result of the ear, "right" or "left"."""
    verdict = mapping(shown.get("verdict"))
    asked = _asked(shown, verdict)
    decision = str(verdict.get("decision", "exam"))
    step = str(verdict.get("next_step") or decision)
    told = words.plain_headlines.get(f"{asked} {decision}") or words.plain_headlines.get(decision)
    return Plain(
        headline=(told or words.plain_headlines["inconclusive"]).format(ear=ear),
        found=_found(verdict, asked, words),
        sure=_sure(verdict, words),
        means=words.plain_means.get(f"{asked} {decision}") or words.plain_means.get(decision, ""),
        next_step=words.plain_next.get(f"{asked} {decision}")
        or words.plain_next.get(step)
        or words.plain_next["not determinable"],
    )


def one_in(p: float) -> int | None:
    """The nearest round number of such ears among which one is expected; None beyond a thousand.

    >>> one_in(0.02), one_in(0.04), one_in(0.0001)
    (50, 30, None)
    """
    if p <= 0.0 or 1.0 / p > ONE_IN[-1]:
        return None
    return min(ONE_IN, key=lambda n: abs(n * p - 1.0) if n * p > 1.0 else abs(1.0 / (n * p) - 1.0))


def _asked(shown: Data, verdict: Data) -> str:
    rule = mapping(shown.get("rule"))
    if rule.get("kind") == ThresholdRule.kind:
        return "limit"
    if rule.get("better"):
        return "improvement"
    return "shift" if verdict.get("rule") else "any"


def _found(verdict: Data, asked: str, words: Words) -> str:
    amount = mapping(verdict.get("amount"))
    low, high = number(amount.get("low_db")), number(amount.get("high_db"))
    where = numbers(amount.get("frequencies_hz"))
    if asked != "shift" or low is None or high is None or not where:
        return ""
    if verdict.get("decision") == "changed" and round(low) > 0:
        text = words.plain_at_least if amount.get("beyond") else words.plain_louder
        return text.format(where=in_khz(where), low=round(low), high=round(high))
    if verdict.get("decision") == "unchanged":
        return words.plain_close.format(
            where=in_khz(where), most=max(abs(round(low)), abs(round(high)))
        )
    return ""


def _sure(verdict: Data, words: Words) -> str:
    p, decision = number(verdict.get("p_changed")), verdict.get("decision")
    if p is None or decision not in ("changed", "unchanged", "notch", "no notch"):
        return ""
    wrong = 1.0 - p if decision in ("changed", "notch") else p
    count = one_in(wrong)
    return words.plain_hardly_wrong if count is None else words.plain_wrong.format(count=count)
