"""One ear of a screen that asks what a clinic asks: rules, limits on thresholds, a notch.

All questions of an ear share one cloud of persons for each combination of their answers, so one
run of tones serves several rules.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from earshift.engine.amount import Amount
from earshift.engine.clinical import (
    Listening,
    as_model_units,
    earlier_of,
    earlier_of_both,
    levels_at,
    newcomer,
    nodes_for,
)
from earshift.engine.cross_hearing import crossing_level
from earshift.engine.domain import Domain
from earshift.engine.obstacles import unjudgeable
from earshift.engine.persons.cloud import PERSONS
from earshift.engine.persons.design import Design, Stopping
from earshift.engine.persons.people import Earlier, Prior, Returning
from earshift.engine.persons.posterior import Posterior
from earshift.engine.persons.questions import Asked, NotchThere, RuleMet
from earshift.engine.question import Circumstances, obstacle_notes
from earshift.engine.reference import Reference
from earshift.engine.rule_settings import NotchSettings, RuleSettings
from earshift.engine.rules import Rule, unverified_note
from earshift.engine.thresholds import SAMPLES, Location, thresholds_from_samples
from earshift.engine.thresholds import Threshold as ThresholdFound
from earshift.engine.track import Track
from earshift.engine.verdict import NOTCH, Verdict

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

PERSONS_OF_MANY = 1000  # on each side, where several questions make many sides
DEVICE = "device"  # a shift that may be all the device's
LARGEST_LOG_BF = 50.0  # nats; beyond it nobody tells numbers apart, and JSON has no infinity
SECOND_HZ = 1e-6  # relative: frequencies closer than this are the same


@dataclass(frozen=True)
class Asking:
    """One question to an ear: what it is about, and what stands in its way.

    Attributes:
        rule: that is asked about; None for a notch.
        asked: the question as persons answer it; None where nothing of it can be judged.
        obstacles: frequencies in Hz at which nothing can be said, and why.
    """

    rule: Rule | None
    asked: Asked | None
    obstacles: Mapping[float, str]

    @property
    def words(self) -> tuple[str, str]:
        """Yes and no as decisions."""
        return ("notch", "no notch") if self.rule is None else ("changed", "unchanged")


def _rule_asking(rule: Rule, setup: Circumstances, earlier: Earlier | None) -> Asking:
    if not rule.needs_reference:
        from_db = np.zeros(len(rule.frequencies_hz))
    elif earlier is None:
        raise AssertionError("a rule on shifts needs a reference")
    else:
        from_db = levels_at(earlier, rule.frequencies_hz)
    obstacles = {
        **_not_offered(setup, rule.frequencies_hz),
        **_too_loud(setup, rule, from_db),
        **unjudgeable(setup, rule, from_db),
    }
    if not any(not set(c.frequencies_hz) & set(obstacles) for c in rule.criteria):
        return Asking(rule, None, obstacles)
    return Asking(rule, RuleMet(rule, unusable_hz=frozenset(obstacles)), obstacles)


def _notch_asking(setup: Circumstances) -> Asking:
    asked = NotchThere()
    obstacles = _not_offered(setup, asked.needs_hz)
    within = [f for f in asked.needs_hz if f not in obstacles]
    for f, low, high in zip(within, *setup.range_at(np.array(within)), strict=True):
        if not low <= high:
            obstacles[f] = "the device does not play it"
        elif crossing_level(setup.other_ear, setup.transducer, f) <= low:
            obstacles[f] = "the other ear might hear the tones"
    return Asking(None, asked if within else None, obstacles)


def _softest(setup: Circumstances) -> dict[float, float]:
    """The softest candidate that may be played at each frequency, in the domain's unit."""
    frequencies = setup.domain.smooth[0].values
    if setup.limits is None:
        return dict.fromkeys(frequencies, setup.domain.intensity.values[0])
    reach = zip(frequencies, setup.limits.reach(setup.domain), strict=True)
    return {f: ends[0] for f, ends in reach if ends is not None}


def _too_loud(setup: Circumstances, rule: Rule, from_db: Array) -> dict[float, str]:
    """Frequencies whose softest tone is so loud that hearing it would clear nobody.

    Half a step past the criterion is let pass: levels are rounded to steps anyway.
    """
    levels = np.array(setup.domain.intensity.values)
    slack = 0.5 * float(np.diff(levels).min())
    least = {
        f: min(c.at_least_db for c in rule.criteria if f in c.frequencies_hz)
        for f in rule.frequencies_hz
    }
    softest = _softest(setup)
    return {
        f: f"the device plays nothing softer than {softest[f]:g} {setup.domain.intensity.unit}"
        for f, level in zip(rule.frequencies_hz, from_db, strict=True)
        if not rule.better
        and f in softest
        and softest[f] > max(level + least[f], levels[0]) + slack
    }


def _not_offered(setup: Circumstances, frequencies_hz: Sequence[float]) -> dict[float, str]:
    """Frequencies that no tone of the domain has: nobody is cleared where nothing was asked."""
    offered = np.array(setup.domain.smooth[0].values)
    return {
        f: "the domain has no tone there"
        for f in frequencies_hz
        if not (np.abs(offered / f - 1.0) < SECOND_HZ).any()
    }


def _earlier(
    references: Sequence[Reference | None], nodes_hz: tuple[float, ...], domain: Domain
) -> Earlier | None:
    """The tested ears as their references know them; None where there are none."""
    given = [one for one in references if one is not None]
    if not given:
        return None
    if len(given) == 1:
        return earlier_of(given[0], nodes_hz, domain)
    return earlier_of_both(given[0], given[1], nodes_hz, domain)


class ClinicalTrack(Track):
    """One ear under the model of persons.

    Where both ears are tested its persons have both, and all answers of the sitting count: the ears
    share their listener, the equipment, and what the population says of two ears of one head. This
    track's ear is the first of its persons' ears, so that both ears are treated alike.

    Attributes:
        asking: what is asked, one or several at once; the first is the one that is spoken of.
        earlier: the tested ears as their references know them, this one first; or None.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        settings: RuleSettings | NotchSettings,
        setup: Circumstances,
        references: Mapping[str | None, Reference | None],
        max_tones: int,
    ) -> None:
        """`references` are of all tested ears, this one first."""
        super().__init__(setup, max_tones)
        self.settings = settings
        domain = setup.domain
        nodes = nodes_for([f for rule in rules for f in rule.frequencies_hz])
        self.earlier = _earlier(tuple(references.values()), nodes, domain)
        each = [_rule_asking(rule, setup, self.earlier) for rule in rules]
        self.asking = tuple(each) or (_notch_asking(setup),)
        offset = settings.device_offset_sd_db
        asked = [one.asked for one in self.asking if one.asked is not None]
        # What a device does to all frequencies cannot be told from hearing. So besides the shift of
        # the ear the apparent one is asked about: nobody is cleared, and no tone chosen, by less.
        as_played = {id(one): one.as_played for one in asked} if offset > 0.0 else {}
        apparent = {key: one for key, one in as_played.items() if one is not None}
        every = (*asked, *apparent.values())
        steering = range(len(asked), len(every)) if apparent else range(len(asked))
        self._number = {id(one): number for number, one in enumerate(every)}
        self._apparent = {key: len(asked) + number for number, key in enumerate(apparent)}
        prior: Prior = newcomer(domain, nodes, len(references))
        if self.earlier is not None:
            prior = Returning(self.earlier, offset)
        self.listening = Listening(
            Design(
                prior,
                every,
                domain.smooth[0].values,
                domain.intensity.values,
                seed=setup.seed,
                stopping=Stopping(settings.bayes_factor, settings.prevalence),
                persons=PERSONS if len(every) <= 2 else PERSONS_OF_MANY,
                steering=tuple(steering),
                softest_db=_softest(setup),
                ears=tuple(ear for ear in references if ear is not None),
                offered_ear=0,
            )
        )

    def tie(self, partner: "ClinicalTrack", p_same_change: float) -> None:
        """Nothing: most shifts are of one ear, and a tie would make these dearer to find."""

    def fork(self) -> Self:
        """Another one with the same trials."""
        other = copy(self)
        other.listening = self.listening.fork()
        return other

    @property
    def _answers(self) -> Listening:
        """The answers as they stand now."""
        one = self.listening
        one.trials, one.catches, one.presses = self.sitting, self.catch_responses, self.presses
        return one

    @property
    def posterior(self) -> Posterior:
        """What all answers say."""
        return self._answers.posterior

    def _number_of(self, which: int) -> int | None:
        return self._number.get(id(self.asking[which].asked))

    def p_of(self, which: int = 0, tones: int | None = None) -> float:
        """P(yes): now, or after so many tones of this ear.

        Where nothing can be judged, the prevalence.
        """
        number = self._number_of(which)
        if number is None:
            return float(self.settings.prevalence)
        return self.posterior.p_yes(number, None if tones is None else self._told_after(tones))

    def _told_after(self, tones: int) -> int:
        """How many tones of the sitting there were after so many of this ear."""
        own, before = iter(self.trials[:tones]), 0
        awaited = next(own, None)
        for number, trial in enumerate(self.sitting, start=1):
            if trial is awaited:
                before, awaited = number, next(own, None)
        return before

    @property
    def p_changed(self) -> float:
        """Posterior probability of what is asked first."""
        return self.p_of()

    def p_changed_after(self, tones: int) -> float:
        """What `p_changed` was after the first so many tones of this ear."""
        return self.p_of(tones=tones)

    @property
    def log_bf(self) -> float:
        """Log Bayes factor of what is asked first."""
        return self._log_bf(0)

    def _log_bf(self, which: int) -> float:
        number = self._number_of(which)
        if number is None:
            return 0.0
        return float(np.clip(self.posterior.log_bf(number), -LARGEST_LOG_BF, LARGEST_LOG_BF))

    @property
    def reliability(self) -> str:
        """Whether the answers follow the tones, and those to silence."""
        return self._answers.reliability

    @property
    def decision(self) -> str:
        """Of what is asked first."""
        return self.decision_on(0)

    def decision_on(self, which: int) -> str:
        """By the Bayes factor.

        Nothing is decided for somebody who is not reliable, and nobody is cleared where a frequency
        of the question could not be judged.
        """
        asking, number = self.asking[which], self._number_of(which)
        if number is None:
            return "not determinable"
        posterior = self.posterior
        found = posterior.decision(number)
        apparent = self._apparent.get(id(asking.asked))
        if apparent is not None and found != "changed":
            cleared, found = found == "unchanged", posterior.decision(apparent)
            if found == "changed":
                found = DEVICE if cleared else "inconclusive"
        if found == "inconclusive" or self.reliability == "poor":
            return "inconclusive"
        yes, no = asking.words
        if found == "changed":
            return yes
        return "not determinable" if asking.obstacles or found == DEVICE else no

    @property
    def done(self) -> bool:
        """All decided, enough tones, or nobody listens."""
        if len(self.trials) >= self.max_tones or self.posterior.reliability == "poor":
            return True
        return all(self.decision_on(k) != "inconclusive" for k in range(len(self.asking)))

    def scores(self) -> Array:
        """Nats that each tone's answer is expected to tell about what is asked."""
        return self.posterior.scores

    def wanted(self) -> Array:
        """How much each tone is wanted next, -inf for those that may not be played."""
        return self.posterior.wanted(self.playable())

    def verdict(self, frequencies_hz: Sequence[Location] | None = None, which: int = 0) -> Verdict:
        """What is said of this ear now, with the shift at each frequency."""
        asking, number = self.asking[which], self._number_of(which)
        posterior, decision = self.posterior, self.decision_on(which)
        reason = next_step = ""
        if decision == "inconclusive" and number is not None:
            reason, next_step = posterior.reason(number), posterior.next_step(number)
            apparent = self._apparent.get(id(asking.asked))
            if apparent is not None and posterior.decision(apparent) == "changed":
                next_step = "better reference"  # with equipment that plays alike
            if self.reliability == "poor":
                reason, next_step = "not reliable", "retest"
        return Verdict(
            decision=decision,
            p_changed=self.p_of(which),
            log_bf=self._log_bf(which),
            tones=len(self.trials),
            shifts=self._shifts(frequencies_hz),
            converged=posterior.converged,
            protocol=NOTCH if asking.rule is None else None,
            rule=None if asking.rule is None else asking.rule.name,
            catch_trials=len(self.catch_responses),
            false_alarms=sum(self.catch_responses),
            reliability=self.reliability,
            evidence_hz=self._evidence_hz(which, decision),
            unverified=None if asking.rule is None else unverified_note(asking.rule),
            not_determinable_hz=tuple(sorted(asking.obstacles)),
            notes=tuple(self._all_notes(asking, decision)),
            reason=reason,
            next_step=next_step,
            attention=posterior.attention,
            p_not_listening=posterior.p_idle,
            effective_size=posterior.effective_size,
            amount=self._amount(which),
        )

    def _amount(self, which: int) -> Amount | None:
        """The rule's own quantity over the persons; None where nothing of it can be judged."""
        asking, number = self.asking[which], self._number_of(which)
        if asking.asked is None or number is None:
            return None
        persons = self.posterior.samples(SAMPLES, balanced_for=number)
        nodes = self.listening.design.prior.nodes_hz
        found = asking.asked.amount(persons.before, persons.after, nodes)
        axis = self.setup.domain.intensity
        now = self.posterior.at(persons.after, found.frequencies_hz, asking.asked.ear)
        on_thresholds = asking.rule is not None and not asking.rule.needs_reference
        return replace(
            found,
            unit=axis.unit if on_thresholds else "",
            beyond=bool((np.median(now, axis=0) > axis.values[-1]).any()),
        )

    def _all_notes(self, asking: Asking, decision: str) -> list[str]:
        notes = [*self._notes(), *self._answers.doubts(), *obstacle_notes(asking.obstacles)]
        if decision == "changed" and asking.rule is not None and asking.rule.confirm_by_retest:
            notes.append("The rule requires an immediate retest of this ear at the same frequency.")
        if id(asking.asked) in self._apparent and decision != "changed":
            notes.append(
                "This device may play levels that differ from the reference's: a shift that is "
                "the same at all frequencies may come from the device."
            )
            if decision == "unchanged":
                notes.append(
                    "Unchanged is said of the levels as measured; the probability also counts that "
                    "the device might hide a shift."
                )
        return [*notes, self.note] if self.note else notes

    def _evidence_hz(self, which: int, decision: str) -> tuple[float, ...]:
        """Changed: the frequencies of the criteria that are probably met; else all that count."""
        asking, number = self.asking[which], self._number_of(which)
        if asking.asked is None or number is None:
            return ()
        if decision != "changed":
            return asking.asked.needs_hz
        persons = self.posterior.samples(SAMPLES, balanced_for=number)
        nodes = self.listening.design.prior.nodes_hz
        return asking.asked.carried_by_hz(persons.before, persons.after, nodes)

    def reference_thresholds(self, frequencies_hz: Sequence[float]) -> list[ThresholdFound]:
        """The reference's thresholds with their intervals; none where there is no reference."""
        if self.earlier is None:
            return []
        posterior = self.posterior
        levels = posterior.at(self.earlier.levels_db, frequencies_hz, 0)
        places = [(float(f),) for f in frequencies_hz]
        return thresholds_from_samples(
            places, as_model_units(levels, self.setup.domain), self.setup.domain
        )

    def _draws(
        self, locations: list[tuple[float, ...]], places: Array, weighed: bool
    ) -> tuple[Array, Array] | None:
        if not weighed and self.earlier is None:
            return None
        posterior, number = self.posterior, self._number_of(0)
        people = posterior.samples(SAMPLES, balanced_for=number)
        wanted = [location[0] for location in locations]
        before, after = (
            as_model_units(posterior.at(levels, wanted, 0), self.setup.domain)
            for levels in (people.before, people.after)
        )
        return before, after
