"""`Screen`: has hearing changed from its reference? Asks the tones that answer just that."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from earshift.engine import choose
from earshift.engine.audiogram import Audiogram
from earshift.engine.both_ears import tested_ears, the_other
from earshift.engine.change import ChangeQuestion
from earshift.engine.checks import as_heard, finite, whole
from earshift.engine.domain import Domain, as_domain
from earshift.engine.exam import USUAL_TONES, Exam
from earshift.engine.field import Field
from earshift.engine.limits import Limits
from earshift.engine.norms import Norm, hyperprior, population_norm
from earshift.engine.notch import NotchModel, NotchSettings
from earshift.engine.procedure import Procedure
from earshift.engine.protocol import Protocol, as_protocol
from earshift.engine.question import Posterior, Question, Settings, Setup
from earshift.engine.reference import (
    Reference,
    audiogram_of,
    earlier_levels,
    measured_hz,
    reference_domain,
    reference_field,
    reference_from_dict,
    reference_to_dict,
    references_of_both,
)
from earshift.engine.refusal import Refusal
from earshift.engine.rule_settings import P_SAME_CHANGE, RuleSettings
from earshift.engine.rules import Rule, as_rule, person_decision
from earshift.engine.shift import ShiftModel
from earshift.engine.thresholds import Location, Threshold
from earshift.engine.tone import Trial
from earshift.engine.track import EarTrack
from earshift.engine.values import EARS
from earshift.engine.verdict import NOTCH, PersonVerdict, Verdict

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
S = TypeVar("S", RuleSettings, NotchSettings)


@dataclass(frozen=True)
class Inquiry:
    """What a screen was asked to find out, before it is put to an ear."""

    settings: Settings
    put: Callable[[Setup], Question]
    design: Mapping[str, Any]  # as a stored design keeps it


def _inquiry(
    protocol: Protocol,
    rule: Rule | None,
    hypotheses: str | None,
    settings: RuleSettings | NotchSettings | None,
) -> Inquiry:
    """The question that a screen's arguments ask."""
    if hypotheses is not None:
        notch = _settings(settings, NotchSettings)
        stored = {"protocol": None, "rule": None, "settings": notch.to_dict()}
        return Inquiry(notch, lambda setup: NotchModel.asked(setup, notch), stored)
    if rule is None:
        stored = {"protocol": protocol.to_dict(), "rule": None, "settings": None}
        return Inquiry(protocol, lambda setup: ChangeQuestion(setup, protocol), stored)
    by_rule = _settings(settings, RuleSettings)
    stored = {"protocol": None, "rule": rule.to_dict(), "settings": by_rule.to_dict()}
    return Inquiry(by_rule, lambda setup: ShiftModel.asked(setup, rule, by_rule), stored)


def _settings(given: object, kind: type[S]) -> S:
    """Settings of this kind, the usual ones if none are given."""
    if given is None:
        return kind()
    if type(given) is not kind:
        raise Refusal(f"settings must be earshift.{kind.__name__}, got {given!r}")
    return given


class ByEar(float):
    """A probability of two ears: as a number the larger one, and either ear's by a call.

    >>> screen.p_changed("left")
    """

    of: Mapping[str, float]

    def __new__(cls, of: Mapping[str, float]) -> Self:
        largest = super().__new__(cls, max(of.values()))
        largest.of = of
        return largest

    def __call__(self, ear: str) -> float:
        if ear not in self.of:
            raise Refusal(f"ear must be 'right' or 'left', got {ear!r}")
        return self.of[ear]


class Screen(Procedure):
    """Has this ear changed from its reference? Asks the tones that answer just that.

    With `rule`, "changed" means that the threshold-shift rule is met; without, that another field
    than the reference's explains the answers (Bayesian active differential selection). With
    `hypotheses="notch"` there is no reference: the question is whether the audiogram has a notch
    around 3-6 kHz, and the decision "notch" or "no notch" (`notch.py`).

    A rule's frequency is not determinable where the reference has no threshold, where a shift as
    large as the rule asks would need tones louder than the domain or the limits allow, or where the
    other ear might hear them. Tones that the other ear might hear are never asked.

    >>> screen = Screen(reference=first, rule="osha-sts")
    >>> while not screen.done:
    ...     tone = screen.ask()
    ...     screen.tell(tone, heard=listener(tone))
    >>> print(screen.verdict())

    With `ears="both"` it screens both ears together, with a verdict for each and for the person.
    An ear that is decided is asked no more, unless what the other ear tells opens it again; each
    ear has at most half of `max_tones`. `ask` gives tones with their ear and `tell` needs it. What
    the other ear might hear follows from its reference. `of` gives one ear's part.

    >>> screen = Screen({"right": first, "left": other}, ears="both", rule="osha-sts")

    Args:
        reference: an earlier `Exam`, an `Audiogram` or a `Norm`; of both ears, a mapping of
            "right" and "left" to theirs, or one exam of both. None where a notch is asked about.
        protocol: how change is tested where no rule is asked about: a `Protocol`, its name or a
            mapping of settings; "best" by default ("best-0.1" on other axes than a tone's).
        ears: "both", or None for one ear.
        rule: a threshold-shift rule by name, or a `Rule`.
        hypotheses: "notch", or None.
        settings: of a rule (`RuleSettings`) or of a notch (`NotchSettings`).
        allow_unverified: to use a rule that was not checked against its source.
        alike_share: of both ears, the probability that both changed alike or neither did, else
            each for itself; 0 takes the ears apart. By default as in real people.
        other_ear: thresholds of the other ear, of a screen of one ear.
        transducer: what plays the tones, one of `values.TRANSDUCERS`: how much the head keeps
            from the other ear.
        seed: of all chance, a whole number from 0.
        max_tones: after which the screen is done; by default the settings' (of each ear).
        domain: the candidate tones: a `Domain`, or "fine", "audiometer" or "relative"; by default
            the reference exam's.
        limits: how loud a tone may be; None for no limits.
    """

    kind = "screen"

    def __init__(
        self,
        reference: Reference | Mapping[str, Reference] | None = None,
        protocol: str | Protocol | Mapping[str, Any] | None = None,
        *,
        ears: str | None = None,
        rule: str | Rule | None = None,
        hypotheses: str | None = None,
        settings: RuleSettings | NotchSettings | None = None,
        allow_unverified: bool = False,
        alike_share: float | None = None,
        other_ear: Audiogram | None = None,
        transducer: str = "unknown",
        seed: int = 0,
        max_tones: int | None = None,
        domain: str | Domain | None = None,
        limits: Limits | None = None,
    ) -> None:
        tested = tested_ears(ears)
        if rule is not None and protocol is not None:
            raise Refusal("give a rule or a protocol, not both: they ask different questions")
        if hypotheses is not None:
            _check_hypotheses(hypotheses, ears, reference, protocol, rule)
        if rule is None and hypotheses is None and settings is not None:
            raise Refusal("settings belong to a rule; without one give a protocol")
        self.rule = None if rule is None else as_rule(rule, allow_unverified)
        self.hypotheses = hypotheses
        self.protocol = as_protocol(_usual(reference, domain) if protocol is None else protocol)
        self._inquiry = _inquiry(self.protocol, self.rule, hypotheses, settings)
        self.settings = RuleSettings() if self.rule is None else _settings(settings, RuleSettings)
        self.notch = NotchSettings() if hypotheses is None else _settings(settings, NotchSettings)
        strategy = self._inquiry.settings.strategy
        if strategy not in choose.STRATEGIES:
            raise Refusal(
                f"strategy must be one of {', '.join(choose.STRATEGIES)}, got {strategy!r}"
            )
        self.guess, self.lapse = self._inquiry.settings.guess, self._inquiry.settings.lapse
        self.p_same_change = _p_same_change(alike_share, ears)
        references: dict[str | None, Reference]
        if ears is None:
            # Nobody's earlier exam where a notch is asked about: what is known is the population.
            one = population_norm() if hypotheses is not None else cast(Reference, reference)
            references = {None: one}
        else:
            references = dict(references_of_both(reference).items())
        # Kept as data: what happens to the reference exam later is no concern of this screen.
        self._reference_data = {
            ear: None if hypotheses else reference_to_dict(given)
            for ear, given in references.items()
        }
        each = self._inquiry.settings.max_tones
        if max_tones is not None:
            each = -(-whole(max_tones, "max_tones", 1) // len(tested))
        super().__init__(
            ears=ears,
            seed=seed,
            max_tones=len(tested) * each if max_tones is None else max_tones,
            domain=as_domain(reference_domain(references[tested[0]]) if domain is None else domain),
            limits=limits,
            other_ear=other_ear,
            transducer=transducer,
        )
        self._tracks: dict[str | None, EarTrack] = {}
        for ear, given in references.items():
            beside = other_ear if ear is None else _heard_beside(references[the_other(ear)])
            setup = self._setup(given, beside)
            self._tracks[ear] = EarTrack(self._inquiry.put(setup), setup, each)
        self._tie()
        self._catch_responses: tuple[bool, ...] = ()
        self._presses = 0

    def _setup(self, reference: Reference, other_ear: Audiogram | None) -> Setup:
        """What the question finds at an ear with this reference."""
        prior = hyperprior(reading_sd_db=self.protocol.reading_sd_db)
        known = reference_field(reference, self.domain, prior, self.guess, self.lapse)
        levels = None
        if self.limits is not None and self.domain.of_tones:
            levels = earlier_levels(reference, known, self.domain)
        return Setup(
            domain=self.domain,
            limits=self.limits,
            other_ear=other_ear,
            transducer=self.transducer,
            seed=self.seed,
            reference=known,
            prior=hyperprior(sloped=True) if known.slope_mean > 0 else prior,
            measured_hz=measured_hz(reference),
            reference_levels=levels,
        )

    def _tie(self) -> None:
        if self.ears is not None:
            for ear in EARS:
                self._tracks[ear].tie(self._tracks[the_other(ear)], self.p_same_change)

    def fork(self) -> Self:
        """Another one with the same trials; what either is told is no concern of the other's."""
        other = super().fork()
        other._tracks = {ear: track.fork() for ear, track in self._tracks.items()}
        other._tie()
        return other

    @property
    def alike_share(self) -> float:
        """Of both ears: the probability that both changed alike, or neither did."""
        return self.p_same_change

    def of(self, ear: str) -> EarTrack:
        """One ear's part of a screen of both."""
        if self.ears is None:
            raise Refusal(f"this screen is of one ear: there is no {ear!r} ear to speak of")
        if ear not in EARS:
            raise Refusal(f"ear must be 'right' or 'left', got {ear!r}")
        return self._tracks[ear]

    def _track(self, ear: str | None = None) -> EarTrack:
        """The part that is spoken of: the only one, or the named ear's."""
        if ear is not None:
            return self.of(ear)
        if self.ears is not None:
            raise Refusal("this screen is of both ears: say which, such as screen.of('right')")
        return self._tracks[None]

    @property
    def reference_field(self) -> Field:
        """The reference of a screen of one ear, as a field."""
        return self._track().setup.reference

    def _take(self, trial: Trial, ear: str | None) -> None:
        super()._take(trial, ear)
        track = self._tracks[ear]
        track.trials = (*track.trials, trial)

    def tell_catch(self, heard: object) -> None:
        """Take the answer to a silent trial: it says how reliable the others are, of both ears."""
        self._catch_responses = (*self._catch_responses, as_heard(heard))
        for track in self._tracks.values():
            track.catch_responses = self._catch_responses

    def tell_press(self) -> None:
        """Take note of a press of the button when nothing was to be answered."""
        self._presses += 1
        for track in self._tracks.values():
            track.presses = self._presses

    @property
    def state(self) -> Posterior:
        """What all trials so far say, in a screen of one ear."""
        return self._track().posterior

    @property
    def log_bf(self) -> float:
        """Log Bayes factor, in nats: log evidence of changed over unchanged; of one ear."""
        return self.state.log_bf

    @property
    def e_value(self) -> float | None:
        """Anytime-valid factor for change, in a screen of one ear by a protocol; else None.

        The product of M_g's over M_f's probability of every answer, each said before it came. For
        an ear that answers as the reference's field does, the chance that it ever reaches 100 is
        at most 1 %, whatever tones were chosen and whenever one stops (method.md).
        """
        return self._track().e_value

    @property
    def e_value_same(self) -> float | None:
        """The same for "unchanged", on average over changed ears; None where that does not hold.

        It holds where M_g is one model fixed before the first tone: `best`, and a protocol with
        theta_g "fixed" and rho_weights "posterior".
        """
        return self._track().e_value_same

    @property
    def p_changed(self) -> float:
        """Posterior probability of change; under a rule, that it is met; else of a notch.

        Of both ears it is that of the ear which more likely has changed; `of(ear).p_changed` is
        either ear's own.
        """
        if self.ears is None:
            return self._track().p_changed
        return ByEar({ear: self._tracks[ear].p_changed for ear in EARS})

    def p_changed_after(self, tones: int) -> float:
        """What `p_changed` was after the first so many tones, in a screen of one ear."""
        return self._track().p_changed_after(tones)

    @property
    def decisions(self) -> dict[str, str]:
        """Of both ears: changed, unchanged, inconclusive or not determinable, by the ear."""
        return {ear: self.of(ear).decision for ear in EARS}

    @property
    def decision(self) -> str:
        """changed, unchanged, inconclusive or not determinable, by the evidence now.

        Of a notch: notch or no notch. Somebody who reports silence is not cleared by the tones they
        reported, and nobody is cleared at frequencies where the limits let nothing be heard. Of
        both ears it is the person's: changed by one ear, unchanged by both.
        """
        if self.ears is None:
            return self._track().decision
        return person_decision(*self.decisions.values())

    @property
    def open_ears(self) -> tuple[str, ...]:
        """Of both ears: those that are not decided and have tones left."""
        return tuple(ear for ear in EARS if not self.of(ear).done)

    @property
    def done(self) -> bool:
        """Advice: decided, or enough tones. Asking and telling go on working."""
        enough = len(self._trials) >= self.max_tones
        return enough or all(track.done for track in self._tracks.values())

    def scores(self) -> Array:
        """Score of every candidate (places x levels of the domain) by the strategy, now.

        Of both ears, the right ear's places x levels, then the left one's: what a tone says about
        its own ear's question. An ear that is decided scores nothing while the other is open.
        """
        if self.ears is None:
            return self._track().scores()
        ears = self.open_ears or EARS
        nothing = np.full(self.domain.shape, -np.inf)
        return np.vstack([self._tracks[e].scores() if e in ears else nothing for e in EARS])

    def _playable_in(self, ear: str | None) -> Mask:
        return self._tracks[ear].playable()

    def verdict(self, frequencies_hz: Sequence[Location] | None = None) -> Verdict:
        """What the screen says now, with the shift in dB at each frequency.

        On other axes than a tone's the places are given as for `thresholds`, and each shift is a
        `PlaceShift`. Of both ears it is a `PersonVerdict`.
        """
        each = [track.verdict(frequencies_hz) for track in self._tracks.values()]
        if self.ears is None:
            return each[0]
        return cast(Verdict, PersonVerdict(self.decision, len(self._trials), *each))

    @property
    def reliability(self) -> str:
        """good, fair or poor, in a screen of one ear: how far the answers can be trusted."""
        return self._track().reliability

    def thresholds(
        self, frequencies_hz: Sequence[Location] | None = None, *, ear: str | None = None
    ) -> list[Threshold]:
        """The ear's thresholds now, changed and unchanged weighed by their probability.

        `ear` is for a screen of both ears.
        """
        return self._track(ear).thresholds(frequencies_hz)

    def continue_exam(self, max_tones: int = USUAL_TONES) -> Exam:
        """A full exam of this ear, or of both, that begins with every tone of this screen.

        It is done after `max_tones`: 50, or 80 of both ears.
        """
        exam = Exam(
            ears=self.ears,
            seed=self.seed,
            max_tones=max_tones,
            domain=self.domain,
            limits=self.limits,
            other_ear=self.other_ear,
            transducer=self.transducer,
            strategy="level_set",
            halton_tones=0,
            guess=self.guess,
            lapse=self.lapse,
        )
        for trial in self._trials:
            exam.tell(trial.tone, trial.heard)
        return exam

    def _design(self) -> dict[str, Any]:
        design = {**super()._design(), **self._inquiry.design}
        if self.ears is not None:
            tie = {"ears": self.ears, "alike_share": self.p_same_change}
            return {**design, **tie, "reference": dict(self._reference_data)}
        design["reference"] = self._reference_data[None]
        return design if self.hypotheses is None else {**design, "hypotheses": self.hypotheses}

    def to_dict(self) -> dict[str, Any]:
        """Design and trials as plain JSON data: all that is needed to go on elsewhere."""
        return {
            **super().to_dict(),
            "catches": list(self._catch_responses),
            "presses": self._presses,
        }

    @classmethod
    def _from_design(cls, design: dict[str, Any]) -> Self:
        stored = design.pop("reference")
        protocol, rule, settings = (design.pop(name) for name in ("protocol", "rule", "settings"))
        if "hypotheses" in design:
            return cls(settings=NotchSettings(**settings), **design)
        if (protocol is None) == (rule is None):
            raise Refusal("a screen's design has a protocol or a rule, and not both")
        reference: Reference | dict[str, Reference]
        if design.get("ears") is None:
            reference = reference_from_dict(stored)
        else:
            reference = {ear: reference_from_dict(stored[ear]) for ear in EARS}
        return cls(
            reference,
            None if protocol is None else as_protocol(protocol),
            rule=None if rule is None else Rule.from_dict(rule),
            settings=None if settings is None else RuleSettings(**settings),
            allow_unverified=True,
            **design,
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild a screen from `to_dict`'s data; it asks the same next tone."""
        screen = super().from_dict(data)
        try:
            responses = list(data["catches"])
        except (KeyError, TypeError) as error:
            raise Refusal(f"not the data of an earshift screen: {error!r}") from None
        for heard in responses:
            screen.tell_catch(heard)
        for _ in range(whole(data.get("presses", 0), "presses", 0)):
            screen.tell_press()
        return screen


def _usual(reference: object, domain: object) -> str:
    """`best`, whose shifts are those of ears; on other axes than a tone's, 0.1.0's settings."""
    known = reference.domain if domain is None and isinstance(reference, Exam) else domain
    return "best-0.1" if isinstance(known, Domain) and not known.of_tones else "best"


def _p_same_change(alike_share: float | None, ears: str | None) -> float:
    if alike_share is None:
        return P_SAME_CHANGE
    if ears is None:
        raise Refusal("alike_share ties both ears of a person: it needs ears='both'")
    given = finite(alike_share, "alike_share")
    if not 0.0 <= given <= 1.0:
        raise Refusal(f"alike_share must be from 0 to 1, got {alike_share!r}")
    return given


def _heard_beside(reference: Reference) -> Audiogram | None:
    """The other ear's thresholds, as its reference knows them."""
    # A population's thresholds say too little of what this person might hear.
    return None if isinstance(reference, Norm) else audiogram_of(reference)


def _check_hypotheses(hypotheses: object, ears: str | None, *others: object) -> None:
    if hypotheses != NOTCH:
        raise Refusal(f'hypotheses must be "{NOTCH}" or None, got {hypotheses!r}')
    if ears is not None:
        raise Refusal(
            f"hypotheses={hypotheses!r} is asked of one ear at a time: leave out ears='both'"
        )
    if any(other is not None for other in others):
        raise Refusal(
            'a screen with hypotheses="notch" has no reference, protocol or rule: leave them out'
        )
