"""What a screen is asked for: its usual protocol, how its ears are tied, what goes together."""

import warnings
from dataclasses import replace

from earshift.engine.checks import finite
from earshift.engine.domain import Domain
from earshift.engine.exam import Exam
from earshift.engine.protocol import PROTOCOLS, Protocol
from earshift.engine.refusal import Refusal
from earshift.engine.rule_settings import P_SAME_CHANGE
from earshift.engine.rules import person_decision
from earshift.engine.verdict import NOTCH

FORCED_CHOICE = 0.2  # from here on guesses are those of a choice among alternatives
# Of a single psychometric function. Another field that is correlated with the reference's may have
# the same threshold: then no number of answers makes "unchanged" a hundred times as likely.
ONE_FUNCTION = replace(PROTOCOLS["best"], name="one function", rough_share=0.0)


def usual_protocol(reference: object, domain: object) -> Protocol:
    """`best`, whose shifts are those of ears; on other axes than a tone's, 0.1.0's settings, and
    without a smooth axis the shift of a single threshold."""
    known = reference.domain if domain is None and isinstance(reference, Exam) else domain
    if not isinstance(known, Domain) or known.of_tones:
        return PROTOCOLS["best"]
    return PROTOCOLS["best-0.1"] if known.smooth else ONE_FUNCTION


def with_rates_of(protocol: Protocol, reference: object) -> Protocol:
    """A protocol by name, with the guess and lapse rate of an exam on other axes.

    Of tones a named protocol keeps its own, unless somebody guesses as in a forced choice.
    """
    if not isinstance(reference, Exam):
        return protocol
    if reference.domain.of_tones and reference.guess < FORCED_CHOICE:
        return protocol
    return replace(protocol, guess=reference.guess, lapse=reference.lapse)


def p_same_change_of(alike_share: float | None, ears: str | None, clinical: bool) -> float:
    if alike_share is None:
        return 0.0 if clinical else P_SAME_CHANGE
    if ears is None:
        raise Refusal("alike_share ties both ears of a person: it needs ears='both'")
    given = finite(alike_share, "alike_share")
    if not 0.0 <= given <= 1.0:
        raise Refusal("alike_share must be from 0 to 1", got=alike_share)
    if clinical:
        warnings.warn(
            "Screen: alike_share is ignored: by a rule each ear is judged for itself "
            "(docs/migration.md)",
            DeprecationWarning,
            stacklevel=3,
        )
        return 0.0
    return given


def decision_of_person(right: str, left: str) -> str:
    """What the decisions on two ears say of the person; one notch is a notch."""
    if "notch" in (right, left):
        return "notch"
    return right if right == left else person_decision(right, left)


def check_hypotheses(hypotheses: object, *others: object) -> None:
    if hypotheses != NOTCH:
        raise Refusal(f'hypotheses must be "{NOTCH}" or None, got {hypotheses!r}')
    if any(other is not None for other in others):
        raise Refusal('a screen with hypotheses="notch" has no protocol or rule: leave them out')
