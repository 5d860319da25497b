"""`Screen`: has hearing changed from its reference? Asks the tones that answer just that."""

from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from earshift.engine.audiogram import Audiogram
from earshift.engine.checks import as_heard, whole
from earshift.engine.clinical import check_tones, first_of_best
from earshift.engine.clinical_track import ClinicalTrack
from earshift.engine.domain import Domain, as_domain
from earshift.engine.ears import ByEar, tested_ears, the_other
from earshift.engine.exam import PERSONS, Exam
from earshift.engine.field_exam import USUAL_TONES
from earshift.engine.limits import Limits
from earshift.engine.norms import hyperprior
from earshift.engine.protocol import Protocol, as_protocol
from earshift.engine.question import Circumstances, Setup
from earshift.engine.reference import (
    Reference,
    earlier_levels,
    heard_beside,
    known_levels,
    measured_hz,
    reference_domain,
    reference_field,
    reference_from_dict,
    reference_kind,
    reference_to_dict,
    references_of_both,
)
from earshift.engine.refusal import Refusal
from earshift.engine.rule_settings import NotchSettings, RuleSettings
from earshift.engine.rules import Rule, as_rules
from earshift.engine.screen_checks import (
    check_hypotheses,
    decision_of_person,
    p_same_change_of,
    usual_protocol,
    with_rates_of,
)
from earshift.engine.screen_views import ScreenViews
from earshift.engine.thresholds import Location, Threshold
from earshift.engine.tone import Tone, Trial
from earshift.engine.track import EarTrack, Track
from earshift.engine.values import EARS
from earshift.engine.verdict import PersonVerdict, Verdict

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
S = TypeVar("S", RuleSettings, NotchSettings)

FIRST_VERSION = "0.1.0"  # whose designs name no engine
BEGUN_BEFORE = (
    "This screen was started with version 0.1.0. All its answers are judged by the present "
    "method, so its later tones may differ from those of that version."
)


def _settings(given: object, kind: type[S]) -> S:
    """Settings of this kind, the usual ones if none are given."""
    if given is None:
        return kind()
    if not isinstance(given, kind):
        raise Refusal(f"settings must be earshift.{kind.__name__}", got=given)
    return given


class Screen(ScreenViews):
    """Has this ear changed from its reference? Asks the tones that answer just that.

    With `rule`, "changed" means that the threshold-shift rule is met; without, that another field
    than the reference's explains the answers (Bayesian active differential selection). With several
    `rules` one run of tones serves all of them: `verdicts` has each one's, and whatever else speaks
    of a decision speaks of the first. With `hypotheses="notch"` the question is whether one of 3, 4
    and 6 kHz is at least 10 dB worse than both 2 and 8 kHz, and the decision "notch" or "no notch".
    A notch or a `ThresholdRule` needs no reference; if one is given, it informs the prior.

    Rules and notches are decided by the Bayes factor of the settings, 100 by default for a rule.
    Before "unchanged" a tone no louder than the reference and the criterion has been answered at
    each frequency of the rule.

    A rule's frequency is not determinable where the reference has no threshold, where a shift as
    large as the rule asks would need tones louder than the domain or the limits allow, or where the
    other ear might hear them. Tones that the other ear might hear are never asked.

    With `ears="both"` it screens both ears together, with a verdict for each and for the person.
    A decided ear gets no more tones, unless answers from the other ear reopen it; each ear has at
    most half of `max_tones`. `ask` gives tones with their ear and `tell` needs it. What
    the other ear might hear follows from its reference. `of` gives one ear's part.

    Args:
        reference: an earlier `Exam`, an `Audiogram` or a `Norm`; of both ears, a mapping of
            "right" and "left" to theirs, or one exam of both. A notch and a `ThresholdRule` can
            do without.
        protocol: how change is tested where no rule is asked about: a `Protocol`, its name or a
            mapping of settings; "best" by default. On other axes than a tone's it is "best-0.1",
            and without a smooth axis a shift of the threshold by 2, 4 or 6 times the `scale` of
            the intensity axis, give or take 0.8; a protocol by name, or none, takes the guess and
            lapse rate of the reference exam there.
        ears: "both", or None for one ear.
        rule: a threshold-shift rule by name (with " improvement" after it, the same the other
            way), a `Rule` or a `ThresholdRule`.
        rules: several rules in one screen.
        hypotheses: "notch", or None.
        settings: of a rule (`RuleSettings`) or of a notch (`NotchSettings`).
        allow_unverified: allows a rule that was not checked against its source.
        alike_share: of both ears, the probability that both changed alike or neither did, else
            each for itself; 0 takes the ears apart. By default as in real people. By a rule each
            ear is judged for itself, and this is ignored with a warning.
        other_ear: thresholds of the other ear, of a screen of one ear.
        transducer: what plays the tones, one of `values.TRANSDUCERS`: how much the head keeps
            from the other ear.
        seed: of all random numbers, a whole number from 0.
        max_tones: after which the screen is done; by default the settings' (of each ear).
        domain: the candidate tones: a `Domain`, or "fine", "audiometer" or "relative"; by default
            the reference exam's.
        limits: how loud a tone may be; None for no limits.

    Raises:
        Refusal: for a reference that is none, an unknown rule or protocol, or questions that do
            not go together.

    Examples:
        >>> import earshift as es
        >>> ear = {500: 10, 1000: 10, 2000: 10, 3000: 15, 4000: 20, 6000: 25}  # dB HL
        >>> listener = es.Listener(ear, seed=1)
        >>> screen = es.Screen(es.Audiogram(ear), rule="osha-sts", seed=1)
        >>> while not screen.done:
        ...     tone = screen.ask()
        ...     screen.tell(tone, heard=listener(tone))
        >>> screen.verdict().decision
        'unchanged'

        Both ears:

        >>> references = {"right": es.Audiogram(ear), "left": es.Audiogram(ear)}
        >>> es.Screen(references, ears="both", rule="osha-sts").ask().ear
        'right'
    """

    kind = "screen"

    def __init__(
        self,
        reference: Reference | Mapping[str, Reference] | None = None,
        protocol: str | Protocol | Mapping[str, Any] | None = None,
        *,
        ears: str | None = None,
        rule: str | Rule | None = None,
        rules: Sequence[str | Rule] | None = None,
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
        self.rules = as_rules(rule, rules, allow_unverified)
        if self.rules and protocol is not None:
            raise Refusal("give a rule or a protocol, not both: they ask different questions")
        if hypotheses is not None:
            check_hypotheses(hypotheses, protocol, rule, rules or None)
        self.hypotheses = hypotheses
        self._clinical = bool(self.rules) or hypotheses is not None
        if not self._clinical and settings is not None:
            raise Refusal("settings belong to a rule; without one give a protocol")
        known = usual_protocol(reference, domain) if protocol is None else as_protocol(protocol)
        if protocol is None or isinstance(protocol, str):
            known = with_rates_of(known, reference)
        self.protocol = known
        self.prior = reference.prior if isinstance(reference, Exam) else None
        if self.prior is not None and domain is not None:
            domain = self.prior.on(as_domain(domain))
        self.settings = RuleSettings() if not self.rules else _settings(settings, RuleSettings)
        self.notch = NotchSettings() if hypotheses is None else _settings(settings, NotchSettings)
        self.guess, self.lapse = self.protocol.guess, self.protocol.lapse
        self.p_same_change = p_same_change_of(alike_share, ears, self._clinical)
        references = self._references(reference, ears)
        # Kept as data: what happens to the reference exam later is no concern of this screen.
        self._reference_data = {
            ear: None if given is None else reference_to_dict(given)
            for ear, given in references.items()
        }
        each = self._usual_tones
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
        if self._clinical:
            check_tones(self.domain, "a screen by a rule or for a notch")
        self._begun_before = False
        self._tracks: dict[str | None, Track] = {}
        for ear in references:
            beside = other_ear if ear is None else heard_beside(references[the_other(ear)])
            self._tracks[ear] = self._track_of(ear, references, beside, each)
        self._tie()
        self._catch_responses: tuple[bool, ...] = ()
        self._presses = 0

    @property
    def rule(self) -> Rule | None:
        """The rule that is asked about, the first of several; None without one."""
        return self.rules[0] if self.rules else None

    @property
    def _usual_tones(self) -> int:
        if self.rules:
            return self.settings.max_tones
        return self.protocol.max_tones if self.hypotheses is None else self.notch.max_tones

    def _references(self, given: Any, ears: str | None) -> dict[str | None, Reference | None]:
        """Each tested ear's reference, None where the question does without."""
        needed = not self._clinical or any(rule.needs_reference for rule in self.rules)
        if given is None and not needed:
            return dict.fromkeys(tested_ears(ears))
        if ears is not None:
            return dict(references_of_both(given).items())
        reference_kind(given)  # refuses what is none
        return {None: given}

    def _track_of(
        self,
        ear: str | None,
        references: Mapping[str | None, Reference | None],
        beside: Audiogram | None,
        tones: int,
    ) -> Track:
        """One ear's part."""
        given = references[ear]
        if self._clinical:
            levels = None
            if self.limits is not None and given is not None:
                levels = known_levels(given, self.domain)
            around = Circumstances(
                domain=self.domain,
                limits=self.limits,
                other_ear=beside,
                transducer=self.transducer,
                seed=self.seed,
                measured_hz=None if given is None else measured_hz(given),
                reference_levels=levels,
            )
            settings = self.settings if self.rules else self.notch
            own_first = {ear: given, **references}
            return ClinicalTrack(self.rules, settings, around, own_first, tones)
        from earshift.engine import change, choose  # with compiled kernels: loaded where needed

        assert given is not None
        choose.as_strategy(self.protocol.strategy, "a screen")
        setup = self._setup(given, beside)
        return EarTrack(change.ChangeQuestion(setup, self.protocol), setup, tones)

    def _setup(self, reference: Reference, other_ear: Audiogram | None) -> Setup:
        """What the question about a field finds at an ear with this reference."""
        prior = hyperprior(reading_sd_db=self.protocol.reading_sd_db)
        if self.prior is not None and isinstance(reference, Exam):
            prior = reference.hyperprior
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
            prior=prior if self.prior or known.slope_mean == 0 else hyperprior(sloped=True),
            measured_hz=measured_hz(reference),
            reference_levels=levels,
        )

    def _tie(self) -> None:
        if self.ears is not None:
            for ear in EARS:
                self._tracks[ear].tie(self._tracks[the_other(ear)], self.p_same_change)

    def fork(self) -> Self:
        """An independent copy with the same trials.

        Returns:
            The copy.
        """
        other = super().fork()
        other._tracks = {ear: track.fork() for ear, track in self._tracks.items()}
        other._tie()
        return other

    @property
    def alike_share(self) -> float:
        """Of both ears: the probability that both changed alike, or neither did."""
        return self.p_same_change

    def _take(self, trial: Trial, ear: str | None) -> None:
        super()._take(trial, ear)
        for tested, track in self._tracks.items():
            track.take(trial, tested == ear)

    def tell_catch(self, heard: object) -> None:
        """Take what was `heard` in a silent trial: it says how reliable the others are."""
        self._catch_responses = (*self._catch_responses, as_heard(heard))
        for track in self._tracks.values():
            track.catch_responses = self._catch_responses
        self._heard_silence()

    def _heard_silence(self) -> None:
        if self._clinical:  # what silence says of the listener may call for another tone
            self._next = None

    def tell_press(self) -> None:
        """Record a press of the button when there was nothing to answer."""
        self._presses += 1
        for track in self._tracks.values():
            track.presses = self._presses
        self._heard_silence()

    @property
    def p_changed(self) -> float:
        """Posterior probability of change; under a rule, that it is met; else of a notch.

        For both ears, the value of the ear that is more likely to have changed; `of(ear).p_changed`
        gives each ear's own.
        """
        if self.ears is None:
            return self._track().p_changed
        return ByEar({ear: self._tracks[ear].p_changed for ear in EARS})

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
        return decision_of_person(*self.decisions.values())

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

        Returns:
            An array of places x levels.
        """
        if self.ears is None:
            return self._track().scores()
        ears = self.open_ears or EARS
        nothing = np.full(self.domain.shape, -np.inf)
        return np.vstack([self._tracks[e].scores() if e in ears else nothing for e in EARS])

    def _choose(self) -> Tone:
        if not self._clinical:
            return super()._choose()
        ears = self._tested if self.ears is None else self.open_ears or EARS
        nothing = np.full(self.domain.shape, -np.inf)
        wanted = [track.wanted() if ear in ears else nothing for ear, track in self._tracks.items()]
        return self._tone_at(*first_of_best(np.vstack(wanted)))

    def _playable_in(self, ear: str | None) -> Mask:
        return self._tracks[ear].playable()

    def verdict(self, frequencies_hz: Sequence[Location] | None = None) -> Verdict:
        """What the screen says now, with the shift in dB at each frequency.

        `frequencies_hz` are in Hz, by default the usual ones. On other axes than a tone's they are
        places as for `Exam.thresholds`, and each shift is a `PlaceShift`. Of both ears it is a
        `PersonVerdict`.

        Returns:
            A `Verdict`; of both ears a `PersonVerdict`.

        Raises:
            Refusal: for frequencies outside the domain.
        """
        return self._verdict(frequencies_hz, 0)

    def _verdict(self, frequencies_hz: Sequence[Location] | None, which: int) -> Verdict:
        each = [track.verdict(frequencies_hz, which) for track in self._tracks.values()]
        if self.ears is None:
            return each[0]
        decision = decision_of_person(*(one.decision for one in each))
        return PersonVerdict(decision, len(self._trials), *each)

    def verdicts(self, frequencies_hz: Sequence[Location] | None = None) -> dict[str, Verdict]:
        """What the screen says of each of its rules, by the rule's name; of a notch, by "notch".

        `frequencies_hz` as of `verdict`.

        Returns:
            A `Verdict` by the name of each rule; of both ears a `PersonVerdict`.

        Raises:
            Refusal: for frequencies outside the domain.
        """
        names = [rule.name for rule in self.rules] or [self.hypotheses or self.protocol.name]
        return {name: self._verdict(frequencies_hz, k) for k, name in enumerate(names)}

    def thresholds(
        self, frequencies_hz: Sequence[Location] | None = None, *, ear: str | None = None
    ) -> list[Threshold]:
        """The ear's thresholds now, changed and unchanged weighed by their probability.

        `frequencies_hz` as of `verdict`; `ear` is for a screen of both ears.

        Returns:
            A `Threshold` for each frequency; on other axes a `PlaceThreshold`.

        Raises:
            Refusal: for frequencies outside the domain, or an ear that is none.
        """
        return self._track(ear).thresholds(frequencies_hz)

    def continue_exam(self, max_tones: int = USUAL_TONES) -> Exam:
        """A full exam of this ear, or of both, that begins with every tone of this screen.

        It is done after `max_tones`, 50 or 80 of both ears; after a rule or a notch, as a clinical
        exam is, also when every threshold is known well enough.

        Returns:
            The exam, which has been told all answers of this screen.
        """
        common: dict[str, Any] = {
            "ears": self.ears,
            "seed": self.seed,
            "max_tones": max_tones,
            "domain": self.domain,
            "limits": self.limits,
            "other_ear": self.other_ear,
            "transducer": self.transducer,
        }
        exam: Exam
        if self._clinical:
            exam = Exam.clinical(**common)
        else:
            exam = Exam(
                **common,
                strategy="level_set",
                halton_tones=0,
                guess=self.guess,
                lapse=self.lapse,
                prior=self.prior,
            )
        for trial in self._trials:
            exam.tell(trial.tone, trial.heard)
        return exam

    def _design(self) -> dict[str, Any]:
        design = super()._design()
        if not self._clinical:
            design |= {"protocol": self.protocol.to_dict(), "rule": None, "settings": None}
        else:
            settings = self.settings if self.rules else self.notch
            design |= {
                "protocol": None,
                "rule": None if self.rule is None else self.rule.to_dict(),
                "settings": settings.to_dict(),
                "engine": PERSONS,
            }
            if len(self.rules) > 1:
                design["rules"] = [rule.to_dict() for rule in self.rules]
            if self._begun_before:
                design["begun_with"] = FIRST_VERSION
        if self.hypotheses is not None:
            design["hypotheses"] = self.hypotheses
        if self.ears is not None:
            tie = {"ears": self.ears, "alike_share": self.p_same_change}
            return {**design, **tie, "reference": dict(self._reference_data)}
        return {**design, "reference": self._reference_data[None]}

    def to_dict(self) -> dict[str, Any]:
        """Design and trials as plain JSON data: all that is needed to go on elsewhere.

        Returns:
            Plain values that JSON can hold; `from_dict` reads them back.
        """
        return {
            **super().to_dict(),
            "catches": list(self._catch_responses),
            "presses": self._presses,
        }

    @classmethod
    def _from_design(cls, design: dict[str, Any]) -> Self:
        stored = design.pop("reference")
        protocol, rule, settings = (design.pop(name) for name in ("protocol", "rule", "settings"))
        engine, several = design.pop("engine", None), design.pop("rules", None)
        begun_with = design.pop("begun_with", None)
        if engine not in (None, PERSONS):
            raise Refusal(f"this screen was made by an engine {engine!r} that is not known here")
        clinical = protocol is None
        if (clinical and rule is None and "hypotheses" not in design) or (not clinical and rule):
            raise Refusal("a screen's design has a protocol or a rule, and not both")
        reference: Any = stored
        if design.get("ears") is None or stored is None:
            reference = None if stored is None else reference_from_dict(stored)
        elif any(stored[ear] is None for ear in EARS):
            reference = None
        else:
            reference = {ear: reference_from_dict(stored[ear]) for ear in EARS}
        if clinical:
            design.pop("alike_share", None)  # ties the ears of a screen without a rule
        kind = NotchSettings if "hypotheses" in design else RuleSettings
        screen = cls(
            reference,
            None if clinical else as_protocol(protocol),
            rules=[Rule.from_dict(data) for data in several or ([] if rule is None else [rule])],
            settings=None if settings is None else kind.from_dict(settings),
            allow_unverified=True,
            **design,
        )
        if clinical and (engine is None or begun_with):
            screen._begun_before = True
            for track in screen._tracks.values():
                track.note = BEGUN_BEFORE
        return screen

    def _take_silence(self, data: Mapping[str, Any]) -> None:
        try:
            responses = list(data["catches"])
        except (KeyError, TypeError) as error:
            raise Refusal(f"not the data of an earshift screen: {error!r}") from None
        for heard in responses:
            self.tell_catch(heard)
        for _ in range(whole(data.get("presses", 0), "presses", 0)):
            self.tell_press()
