"""Threshold-shift rules: what counts as "changed" (practice: OSHA, NIOSH, MSHA, ASHA, CTCAE).

A rule is a list of criteria on the shift in dB (worse is positive); it is met when any of them is.
The same objects judge two finished audiograms here and the posterior of a shift in a screen.
Missing data fail safe: one criterion met is enough for "met", "not met" needs every criterion.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from earshift.engine.age_correction import AgeCorrection
from earshift.engine.audiogram import Audiogram
from earshift.engine.checks import decibel, hertz
from earshift.engine.refusal import Refusal
from earshift.engine.values import EARS

Array = NDArray[np.float64]

MOST_RULES = 3  # in one screen: each doubles the clouds of persons
IMPROVEMENT = " improvement"  # after a rule's name: the same the other way
EPSILON_DB = 1e-9  # a mean of 10 dB is met though its sum of thirds rounds to 9.999...


@dataclass(frozen=True)
class Criterion:
    """The mean (or every one) of the shifts at these frequencies is at least so many dB.

    Attributes:
        frequencies_hz: in Hz.
        at_least_db: in dB, worse is positive.
        combine: "mean" of the shifts, or "all": every one of them.

    Raises:
        Refusal: without frequencies, with kHz for Hz, or with a size outside -40 to 140 dB.

    Examples:
        >>> Criterion((2000, 3000, 4000), at_least_db=10).combine
        'mean'
    """

    frequencies_hz: tuple[float, ...]
    at_least_db: float
    combine: str = "mean"

    def __post_init__(self) -> None:
        if isinstance(self.frequencies_hz, str) or not isinstance(self.frequencies_hz, Iterable):
            raise Refusal("a criterion needs a list of frequencies in Hz", got=self.frequencies_hz)
        clean = tuple(hertz(f, "a frequency of a criterion") for f in self.frequencies_hz)
        if not clean or len(set(clean)) != len(clean):
            raise Refusal("a criterion needs different frequencies", got=self.frequencies_hz)
        object.__setattr__(self, "frequencies_hz", clean)
        # A rule on shifts also refuses what is not positive; limits on thresholds may be negative.
        object.__setattr__(self, "at_least_db", decibel(self.at_least_db, "at_least_db"))
        if self.combine not in ("mean", "all"):
            raise Refusal("combine must be 'mean' or 'all'", got=self.combine)

    def margin(self, shift_db: Array) -> Array:
        """How far the shifts (last axis: this criterion's frequencies) are past the criterion.

        Args:
            shift_db: shifts in dB, their last axis over this criterion's frequencies.

        Returns:
            dB past the criterion, one number for each row.

        Examples:
            >>> criterion = Criterion((2000, 3000, 4000), at_least_db=10)
            >>> criterion.margin(np.array([[5.0, 15.0, 25.0]])).round(1).tolist()
            [5.0]
        """
        combined = shift_db.mean(axis=-1) if self.combine == "mean" else shift_db.min(axis=-1)
        return np.asarray(combined - self.at_least_db + EPSILON_DB)


@dataclass(frozen=True)
class Rule:
    """A named set of criteria with its source; met when any criterion is.

    Attributes:
        name: by which it is asked for.
        criteria: of which one suffices.
        text: the rule in words.
        source: where it is written.
        verified: whether it was checked against its source.
        confirm_by_retest: met only if an immediate retest meets the same criterion.
        age_correction: whether the rule's authors allow it.
        better: met by thresholds that are better by as much, and not by worse ones.

    Raises:
        Refusal: without a name or criteria.

    Examples:
        >>> Rule("mine", [Criterion((4000, 6000), at_least_db=12)]).frequencies_hz
        (4000.0, 6000.0)
    """

    name: str
    criteria: tuple[Criterion, ...]
    text: str = ""
    source: str = "supplied by the user"
    verified: bool = True
    confirm_by_retest: bool = False
    age_correction: bool = True
    better: bool = False

    needs_reference: ClassVar[bool] = True  # it speaks of shifts

    if TYPE_CHECKING:  # any list of criteria is taken

        def __init__(
            self, name: str, criteria: Iterable[Criterion], *words: Any, **more: Any
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise Refusal("a rule needs a name", got=self.name)
        if not isinstance(self.criteria, Iterable):
            raise Refusal("a rule needs a list of criteria", got=self.criteria)
        object.__setattr__(self, "criteria", tuple(self.criteria))
        if not self.criteria or not all(isinstance(c, Criterion) for c in self.criteria):
            raise Refusal("a rule needs at least one earshift.engine.rules.Criterion")
        self._check_sizes()

    def _check_sizes(self) -> None:
        """Refuse shifts that every unchanged ear has."""
        least = min(c.at_least_db for c in self.criteria)
        if not least > 0.0:
            raise Refusal(
                f"a rule on shifts needs criteria above 0 dB, got {least:g}",
                advice="worse is positive; for thresholds that got better ask for its improvement",
            )

    @property
    def improvement(self) -> "Rule":
        """The same rule the other way: thresholds that are better by as much."""
        text = f"improvement by as much as: {self.text}" if self.text else ""
        return replace(self, name=f"{self.name}{IMPROVEMENT}", text=text, better=True)

    @property
    def frequencies_hz(self) -> tuple[float, ...]:
        """All frequencies the rule looks at, in order."""
        return tuple(sorted({f for c in self.criteria for f in c.frequencies_hz}))

    def margin(self, shift_db: Array) -> Array:
        """dB past the rule, the best criterion counting; last axis: `frequencies_hz`.

        Args:
            shift_db: shifts in dB, their last axis over the rule's `frequencies_hz`.

        Returns:
            dB past the rule, one number for each row.

        Raises:
            Refusal: for another number of frequencies than the rule has.

        Examples:
            >>> rule = Rule("mine", [Criterion((4000,), 15), Criterion((6000,), 20)])
            >>> rule.frequencies_hz, rule.margin(np.array([20.0, 10.0])).round(1).item()
            ((4000.0, 6000.0), 5.0)
        """
        order = {f: k for k, f in enumerate(self.frequencies_hz)}
        if shift_db.shape[-1:] != (len(order),):
            raise Refusal(
                f"the rule {self.name} needs shifts at {len(order)} frequencies, "
                f"got an array of shape {shift_db.shape}"
            )
        worse = -shift_db if self.better else shift_db
        margins = [c.margin(worse[..., [order[f] for f in c.frequencies_hz]])
                   for c in self.criteria]  # fmt: skip
        return np.asarray(np.max(margins, axis=0))

    def to_dict(self) -> dict[str, Any]:
        """As plain data.

        Returns:
            Plain values that JSON can hold; `from_dict` reads them back.
        """
        data = asdict(self)
        for one in data["criteria"]:
            one["frequencies_hz"] = list(one["frequencies_hz"])
        data["criteria"] = list(data["criteria"])
        if not self.better:  # as written by versions that knew of no improvement
            del data["better"]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Rule":
        """A rule from `to_dict`'s data; one on thresholds comes back as a `ThresholdRule`.

        Args:
            data: what `to_dict` gave.

        Returns:
            The rule that was written down.
        """
        if data.get("kind") == ThresholdRule.kind:
            cls = ThresholdRule
        criteria = tuple(
            Criterion(tuple(c["frequencies_hz"]), c["at_least_db"], c["combine"])
            for c in data["criteria"]
        )
        words = {k: data[k] for k in ("name", "text", "source", "verified")}
        return cls(
            criteria=criteria,
            confirm_by_retest=data["confirm_by_retest"],
            age_correction=data["age_correction"],
            better=data.get("better", False),
            **words,
        )


@dataclass(frozen=True)
class ThresholdRule(Rule):
    """A rule on the thresholds of now alone, such as a limit of fitness for duty.

    Its criteria speak of thresholds in dB HL where those of a `Rule` speak of shifts: met when the
    mean (or every one) of the thresholds at these frequencies is at least so many dB HL.

    Its parameters are those of `Rule`; `better` is refused.

    Raises:
        Refusal: without a name or criteria.

    Examples:
        >>> ThresholdRule("40 dB at 2 kHz", [Criterion((2000.0,), 40.0)]).needs_reference
        False
    """

    kind: ClassVar[str] = "thresholds"
    needs_reference: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.better:
            raise Refusal("a rule on thresholds has no improvement: there is nothing before them")

    def _check_sizes(self) -> None:
        """Any hearing level can be a limit."""

    def to_dict(self) -> dict[str, Any]:
        """As plain data.

        Returns:
            Plain values that JSON can hold; `from_dict` reads them back.
        """
        return {**super().to_dict(), "kind": self.kind}


_STS_HZ = (2000.0, 3000.0, 4000.0)
_NIOSH_HZ = (500.0, 1000.0, 2000.0, 3000.0, 4000.0, 6000.0)
_OTOTOXIC_HZ = (1000.0, 2000.0, 3000.0, 4000.0, 6000.0, 8000.0)

RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule(
            name="osha-sts",
            criteria=(Criterion(_STS_HZ, 10.0),),
            text="standard threshold shift: mean shift at 2000, 3000 and 4000 Hz of 10 dB or more",
            source="29 CFR 1910.95(g)(10)(i)",
        ),
        Rule(
            name="niosh-15",
            criteria=tuple(Criterion((f,), 15.0) for f in _NIOSH_HZ),
            text="significant threshold shift: 15 dB or more at any of 500 to 6000 Hz, to be "
            "confirmed by an immediate retest at the same frequency",
            source="NIOSH 98-126, NIOSH 96-110",
            confirm_by_retest=True,
            age_correction=False,
        ),
        Rule(
            name="msha-sts",
            criteria=(Criterion(_STS_HZ, 10.0),),
            text="standard threshold shift: mean shift at 2000, 3000 and 4000 Hz of 10 dB or more",
            source="30 CFR 62.101",
        ),
        Rule(
            name="asha-1994",
            criteria=(
                *(Criterion((f,), 20.0) for f in _OTOTOXIC_HZ),
                *(Criterion(pair, 10.0, "all") for pair in pairwise(_OTOTOXIC_HZ)),
            ),
            text="ototoxic change: 20 dB or more at one frequency, or 10 dB or more at two "
            "adjacent ones (loss of response at three frequencies is not judged here)",
            source="ASHA 1994, wording not verified",
            verified=False,
        ),
        Rule(
            name="ctcae-5-grade-1",
            criteria=tuple(Criterion(pair, 15.0) for pair in pairwise(_OTOTOXIC_HZ)),
            text="hearing impaired, grade 1 or more: shift of 15 dB or more averaged over two "
            "contiguous frequencies",
            source="CTCAE v5, adults in a monitoring programme; one secondary source",
            verified=False,
        ),
    )
}


TITLES = {
    "osha-sts": "OSHA standard threshold shift",
    "niosh-15": "NIOSH significant threshold shift",
    "msha-sts": "MSHA standard threshold shift",
    "asha-1994": "ASHA 1994 ototoxic change",
    "ctcae-5-grade-1": "CTCAE version 5, grade 1",
}


def rule_title(name: str) -> str:
    """What people call the rule of this name; a rule of the user's own goes by its name."""
    own = name.removesuffix(IMPROVEMENT)
    return TITLES.get(own, own) + name[len(own) :]


def rule_meaning(name: str, text: str) -> str:
    """A rule's text as it stands behind its title, without the words that both have."""
    first, _, rest = text.partition(": ")
    return rest if rest and rule_title(name).endswith(first) else text


def unverified_note(rule: Rule) -> str | None:
    """The mark that every output of an unverified rule carries."""
    if rule.verified:
        return None
    return f"The {rule_title(rule.name)} rule is not verified: {rule.source}."


def as_rule(rule: "str | Rule", allow_unverified: bool = False) -> Rule:
    """A Rule from itself or its name; an unverified one only when the caller says so."""
    if isinstance(rule, str) and rule.removesuffix(IMPROVEMENT) != rule:
        return as_rule(rule.removesuffix(IMPROVEMENT), allow_unverified).improvement
    if not isinstance(rule, Rule):
        if not isinstance(rule, str) or rule not in RULES:
            known = [name for name in RULES if allow_unverified or RULES[name].verified]
            raise Refusal(f"unknown rule {rule!r}; known: {', '.join(known)}")
        rule = RULES[rule]
    if not rule.verified and not allow_unverified:
        raise Refusal(
            f"the rule {rule.name} is not verified against its source ({rule.source}); "
            "in Python, allow_unverified=True uses it, and every output will say so"
        )
    return rule


def as_rules(
    rule: str | Rule | None, rules: Sequence[str | Rule] | None, allow_unverified: bool
) -> tuple[Rule, ...]:
    """The rules that are asked about, one or several."""
    if rule is not None and rules:
        raise Refusal("give rule or rules, not both: rules=[...] takes one as well as several")
    if rules is not None and (isinstance(rules, str | Rule) or not isinstance(rules, Sequence)):
        raise Refusal(f"rules must be a list of rules, got {rules!r}; one rule is given as rule=")
    given = [rule] if rule is not None else list(rules or ())
    found = tuple(as_rule(one, allow_unverified) for one in given)
    if len({one.name for one in found}) != len(found):
        raise Refusal(f"rules must be different, got {', '.join(one.name for one in found)}")
    if len(found) > MOST_RULES:
        raise Refusal(f"a screen asks about at most {MOST_RULES} rules at once, got {len(found)}")
    return found


# Two finished audiograms -------------------------------------------------------------------------


@dataclass(frozen=True)
class EarFinding:
    """One rule on one ear's two audiograms.

    Attributes:
        rule: its name.
        decision: "changed", "unchanged" or "not determinable".
        shifts_db: frequency in Hz to shift in dB, after age correction, where there is one, and
            method offsets.
        margin_db: how far past the criterion, in dB, of what could be judged.
        missing_hz: frequencies of the rule without a threshold in either audiogram, in Hz.
        met: the criteria that are met.
        unjudged: the criteria that could not be judged.
        ear: "right" or "left", where it was said.
        baseline_date: of the earlier audiogram.
        current_date: of the later audiogram.
        unverified: a rule that was not checked against its source says so here.
    """

    rule: str
    decision: str
    shifts_db: Mapping[float, float]
    margin_db: float | None
    missing_hz: tuple[float, ...]
    met: tuple[Criterion, ...] = ()
    unjudged: tuple[Criterion, ...] = ()
    ear: str | None = None
    baseline_date: date | None = None
    current_date: date | None = None
    unverified: str | None = None


def judge_ear(
    rule: str | Rule,
    baseline: Audiogram,
    current: Audiogram,
    age: AgeCorrection | None = None,
    dates: tuple[date | None, date | None] = (None, None),
    ear: str | None = None,
    allow_unverified: bool = False,
) -> EarFinding:
    """Apply a rule to an ear's baseline and current audiogram, taken on these dates.

    A frequency without a threshold in either is missing; "no response" now, where the baseline has
    a threshold, is a shift of at least the difference and can only help to meet a criterion.
    Where the two audiograms' method offsets differ, the difference is no shift and is taken off.
    """
    rule = as_rule(rule, allow_unverified)
    if not rule.needs_reference:
        raise Refusal(f"{rule.name} is a rule on thresholds: it compares nothing with a baseline")
    if ear not in (None, *EARS):
        raise Refusal("ear must be left, right or None", got=ear)
    if None not in dates and dates[0] > dates[1]:  # type: ignore[operator]
        raise Refusal(
            f"the baseline ({dates[0]}) is later than the current audiogram ({dates[1]}): swapped?"
        )
    if age is not None and not rule.age_correction:
        raise Refusal(f"{rule.name} is judged without age correction ({rule.source})")
    # For every frequency of the rule, also those not measured: whether a rule can be corrected
    # for age must not depend on the data at hand.
    explained = {
        f: current.method_offset_db - baseline.method_offset_db + (age.at(f) if age else 0.0)
        for f in rule.frequencies_hz
    }
    shifts: dict[float, float] = {}
    at_least: set[float] = set()
    for f in rule.frequencies_hz:
        before = baseline.thresholds_db_hl.get(f)
        now = current.thresholds_db_hl.get(f)
        if before is None:
            continue
        if now is None and f in current.no_response_db_hl and not rule.better:
            now = current.no_response_db_hl[f]
            at_least.add(f)
        if now is None:
            continue
        shifts[f] = now - before - explained[f]
    toward = -1.0 if rule.better else 1.0
    margins, met, unjudged = [], [], []
    for criterion in rule.criteria:
        if all(f in shifts for f in criterion.frequencies_hz):
            margin = float(
                criterion.margin(toward * np.array([shifts[f] for f in criterion.frequencies_hz]))
            )
            margins.append(margin)
            if margin >= 0:
                met.append(criterion)
            # A lower bound below the criterion says nothing about being below it.
            if margin < 0 and at_least & set(criterion.frequencies_hz):
                unjudged.append(criterion)
        else:
            unjudged.append(criterion)
    return EarFinding(
        rule=rule.name,
        decision="changed" if met else "not determinable" if unjudged else "unchanged",
        shifts_db=shifts,
        margin_db=max(margins) - EPSILON_DB if margins else None,
        missing_hz=tuple(f for f in rule.frequencies_hz if f not in shifts),
        met=tuple(met),
        unjudged=tuple(unjudged),
        ear=ear,
        baseline_date=dates[0],
        current_date=dates[1],
        unverified=unverified_note(rule),
    )


def confirmed(first: EarFinding, retest: EarFinding) -> EarFinding:
    """A finding after its immediate retest: changed if both meet the same criterion.

    A retest that could not be judged there leaves a first finding of "changed" not determinable.
    """
    if (first.rule, first.ear, first.baseline_date) != (
        retest.rule, retest.ear, retest.baseline_date,
    ):  # fmt: skip
        raise Refusal("a retest confirms the same rule on the same ear against its baseline")
    if first.decision != "changed":
        return first
    both = tuple(c for c in first.met if c in retest.met)
    if both:
        return replace(first, met=both)
    judged = not set(first.met) & set(retest.unjudged)
    return replace(
        first,
        met=(),
        decision="unchanged" if judged and not first.unjudged else "not determinable",
        shifts_db=retest.shifts_db,
        margin_db=retest.margin_db,
    )


def judge_person(findings: Mapping[str, EarFinding | None]) -> str:
    """One ear suffices for "changed"; "unchanged" needs both ears, named left and right."""
    if not findings.keys() <= set(EARS):
        raise Refusal(f"ears are 'left' and 'right', got {sorted(map(str, findings))}")
    given = [(ear, finding) for ear, finding in findings.items() if finding is not None]
    if len({finding.rule for _, finding in given}) > 1:
        raise Refusal("both ears must be judged by the same rule")
    for ear, finding in given:
        if finding.ear not in (None, ear):
            raise Refusal(f"the finding of the {finding.ear} ear was given as the {ear} one")
    decisions = [
        "not determinable" if finding is None else finding.decision
        for finding in (findings.get("left"), findings.get("right"))
    ]
    return person_decision(*decisions)


def person_decision(right: str, left: str) -> str:
    """What the decisions on two ears say of the person."""
    decisions = {right, left}
    if "changed" in decisions:
        return "changed"
    if decisions == {"unchanged"}:
        return "unchanged"
    return "inconclusive" if "inconclusive" in decisions else "not determinable"


def recordable(
    finding: EarFinding, current: Audiogram, work_related: bool | None = None
) -> bool | None:
    """29 CFR 1904.10: an STS and, uncorrected for age, a mean of 25 dB HL at 2, 3 and 4 kHz now.

    None when it cannot be said; whether a shift is related to work is a professional's decision.
    One condition that fails is enough for False. "No response" now is at least the level tried.
    """
    if finding.rule != "osha-sts":
        raise Refusal(f"recordable speaks of an OSHA STS, not of {finding.rule}")
    if finding.decision == "unchanged" or work_related is False:
        return False
    levels = {**current.thresholds_db_hl, **current.no_response_db_hl}
    if not all(f in levels for f in _STS_HZ):
        return None
    if sum(levels[f] for f in _STS_HZ) / 3 < 25 - EPSILON_DB:
        return None if any(f in current.no_response_db_hl for f in _STS_HZ) else False
    return True if finding.decision == "changed" and work_related else None
