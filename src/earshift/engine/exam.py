"""`Exam`: a first exam, which measures the hearing of one ear or of both.

`Exam()` fits the paper's psychometric field. `Exam.clinical()` is a `ClinicalExam`, under the model
of persons; it is the one that a clinic runs.
"""

import math
import warnings
from collections.abc import Mapping
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from earshift.engine.audiogram import Audiogram
from earshift.engine.checks import as_heard, finite, whole
from earshift.engine.clinical import (
    Listening,
    as_model_units,
    check_tones,
    earlier_of,
    earlier_of_both,
    first_of_best,
    folded,
    newcomer,
    nodes_for,
)
from earshift.engine.cross_hearing import INTERAURAL_DB, crossing_level, own_ear_only
from earshift.engine.domain import Domain
from earshift.engine.ears import the_other, trials_of
from earshift.engine.field_exam import USUAL_TONES, FieldExam, tones_or_usual
from earshift.engine.limits import Limits
from earshift.engine.persons.design import Design, Stopping
from earshift.engine.persons.people import Earlier, Newcomer, Returning
from earshift.engine.persons.posterior import Posterior
from earshift.engine.procedure import FIT, Procedure
from earshift.engine.psychometric import Curves, Estimate, rate_estimate
from earshift.engine.refusal import Refusal
from earshift.engine.thresholds import (
    AUDIOMETRIC_HZ,
    SAMPLES,
)
from earshift.engine.tone import Tone
from earshift.engine.values import EARS

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


PERSONS = "persons"  # the engine of a clinical exam, as a stored design names it; else fields


class Exam(FieldExam):
    """A first exam: Halton tones to look around, then the most informative tone, and again.

    With `ears="both"` it examines both ears together, and what one ear teaches is a hint for the
    other. `ask` then gives tones with their ear, and `tell` needs it; level limits look at each
    ear's own trials. A tone `INTERAURAL_DB` above the other ear's threshold might be heard there.
    The other ear's threshold is what the exam has learnt so far, so such tones are not asked once
    both slopes are known, and `cross_heard` looks back at all tones with what is known now. A
    threshold that lies past that level is flagged `cross_hearing`: finding it needs masking.

    Args:
        ears: "both", or None for one ear.
        ear: of an exam of both ears, the one that is spoken of ("right" or "left"); see `of`.
        seed: of all random numbers, a whole number from 0.
        max_tones: after which the exam is done; 50, or 80 of both ears.
        domain: the candidate tones: a `Domain`, or "fine", "audiometer" or "relative".
        limits: how loud a tone may be; None for no limits.
        other_ear: thresholds of the other ear; tones that it might hear are not asked.
        transducer: what plays the tones, one of `values.TRANSDUCERS`: how much the head keeps
            from the other ear.
        strategy: by which the next tone is chosen: "bald", "level_set", "uncertainty", "random",
            or a function of your own from an `Outlook` to one score for each candidate (places x
            levels), the highest of which is asked. A stored exam keeps only its name.
        halton_tones: how many tones look around before the strategy chooses.
        guess: probability of "heard" without hearing, from 0 to 0.5 (forced choice among n
            alternatives: 1 / n), or "estimate".
        lapse: probability of "missed" in spite of hearing, from 0 to below 0.5, or "estimate".
        prior: what is expected of the thresholds and the slope; by default what audiograms teach.

    Raises:
        Refusal: for values that cannot be, and for combinations that make no sense.

    Examples:
        >>> import earshift as es
        >>> listener = es.Listener.of_class("mild", seed=2)
        >>> exam = es.Exam(seed=1, max_tones=20)
        >>> while not exam.done:
        ...     tone = exam.ask()
        ...     exam.tell(tone, heard=listener(tone))
        >>> len(exam.thresholds([1000, 4000]))
        2

        Both ears:

        >>> listeners = {"right": listener, "left": es.Listener.of_class("slight", seed=3)}
        >>> exam = es.Exam(ears="both", seed=1, max_tones=20)
        >>> while not exam.done:
        ...     tone = exam.ask()
        ...     exam.tell(tone, heard=listeners[tone.ear](tone))
        >>> len(exam.thresholds([500, 1000, 2000, 4000], ear="left"))
        4
    """

    @staticmethod
    def clinical(
        *,
        ears: str | None = None,
        ear: str | None = None,
        seed: int = 0,
        max_tones: int = USUAL_TONES,
        precision_db: float = 5.0,
        reference: "Exam | Audiogram | Mapping[str, Exam | Audiogram] | None" = None,
        domain: str | Domain = "audiometer",
        limits: Limits | None = None,
        other_ear: Audiogram | None = None,
        transducer: str = "unknown",
        strategy: str | None = None,
        halton_tones: int | None = None,
        guess: float | None = None,
        lapse: float | None = None,
    ) -> "ClinicalExam":
        """An exam as a clinic runs it: it expects thresholds and answers of real people.

        `ears`, `ear`, `seed`, `domain`, `limits`, `other_ear` and `transducer` are those of `Exam`.
        `strategy`, `halton_tones`, `guess` and `lapse` belong to the psychometric field, no longer
        mean anything here and warn.

        Args:
            max_tones: it is done after so many at the latest.
            precision_db: it is done when every threshold's 95 % interval reaches at most so many dB
                to either side.
            reference: an earlier exam or audiogram of the same ear (of both ears, a mapping of
                "right" and "left" to theirs): the exam then expects that ear, as far as ears
                change.

        Returns:
            An `Exam` whose intervals, guess and lapse rates come from the model of persons.

        Raises:
            Refusal: for values that are none, or a reference of another kind.

        Examples:
            >>> import earshift as es
            >>> exam = es.Exam.clinical(seed=1, max_tones=4)
            >>> person = es.Listener.of_class("mild", seed=1)
            >>> while not exam.done:
            ...     tone = exam.ask()
            ...     exam.tell(tone, heard=person(tone))
            >>> exam
            <ClinicalExam: 4 tones of at most 4>
        """
        without_meaning = {
            "strategy": strategy, "halton_tones": halton_tones, "guess": guess, "lapse": lapse,
        }  # fmt: skip
        given = [name for name, value in without_meaning.items() if value is not None]
        if given:
            warnings.warn(
                f"Exam.clinical: {', '.join(given)} no longer mean anything and are ignored; "
                "Exam(...) takes them (docs/migration.md)",
                DeprecationWarning,
                stacklevel=2,
            )
        return ClinicalExam(
            ears=ears,
            ear=ear,
            seed=seed,
            max_tones=max_tones,
            precision_db=precision_db,
            reference=reference,
            domain=domain,
            limits=limits,
            other_ear=other_ear,
            transducer=transducer,
        )

    @classmethod
    def _from_design(cls, design: dict[str, Any]) -> Self:
        engine = design.pop("engine", None)
        if engine is None:
            return super()._from_design(design)
        if engine != PERSONS:
            raise Refusal(f"this exam was made by an engine {engine!r} that is not known here")
        stored = design.pop("reference", None)
        return cast(Self, ClinicalExam(**design, reference=_reference_from(stored)))


class ClinicalExam(Exam):
    """An exam under the model of persons: what `Exam.clinical` gives; see there.

    Attributes:
        precision_db: how far the 95 % interval of a threshold may reach to either side, in dB.
        reference: the earlier exam or audiogram that it goes by, if any.
    """

    def __init__(
        self,
        *,
        ears: str | None = None,
        ear: str | None = None,
        seed: int = 0,
        max_tones: int = USUAL_TONES,
        precision_db: float = 5.0,
        reference: "Exam | Audiogram | Mapping[str, Exam | Audiogram] | None" = None,
        domain: str | Domain = "audiometer",
        limits: Limits | None = None,
        other_ear: Audiogram | None = None,
        transducer: str = "unknown",
    ) -> None:
        Procedure.__init__(
            self,
            ears=ears,
            seed=seed,
            max_tones=tones_or_usual(max_tones, ears),
            domain=domain,
            limits=limits,
            other_ear=other_ear,
            transducer=transducer,
        )
        self._set_ear(ear)
        check_tones(self.domain, "a clinical exam")
        self.precision_db = finite(precision_db, "precision_db")
        if not self.precision_db > 0.0:
            raise Refusal("precision_db must be positive", got=precision_db)
        # What a field of these trials is fitted with, where a screen without a rule wants one.
        self.strategy, self.halton_tones, self.guess, self.lapse = "level_set", 0, 0.01, 0.02
        self.prior, self._fields, self._parts, self._rates = None, None, None, None
        self._unheard_elsewhere = own_ear_only(self.domain, other_ear, transducer)
        self.reference = reference
        frequencies = self.domain.smooth[0].values
        usual = [f for f in AUDIOMETRIC_HZ if frequencies[0] <= f <= frequencies[-1]]
        self._wanted_hz = tuple(f for f in usual if self._reach_at(f) is not None) or frequencies
        self.listening = Listening(
            Design(
                self._prior(nodes_for(self._wanted_hz)),
                frequencies_hz=frequencies,
                levels_db=self.domain.intensity.values,
                wanted_hz=self._wanted_hz,
                seed=self.seed,
                stopping=Stopping(within_db=self.precision_db),
            )
        )

    def _prior(self, nodes_hz: tuple[float, ...]) -> Newcomer | Returning:
        """Whom to expect: the population, or the person that the reference knows."""
        if self.reference is None:
            return newcomer(self.domain, nodes_hz, len(self._tested))
        if self.ears is None:
            if isinstance(self.reference, Mapping):
                raise Refusal("references by ear are for an exam of both ears: ears='both'")
            given = [self.reference]
        elif isinstance(self.reference, Exam) and self.reference.ears == "both":
            given = [self.reference.of(ear) for ear in EARS]
        elif isinstance(self.reference, Mapping) and set(self.reference) == set(EARS):
            given = [self.reference[ear] for ear in EARS]
        else:
            raise Refusal(
                "the reference of an exam of both ears maps 'right' and 'left' to theirs, or is an "
                f"exam of both ears; got {type(self.reference).__name__}"
            )
        for one in given:
            if not isinstance(one, Exam | Audiogram):
                raise Refusal(
                    "reference must be an earlier earshift Exam or Audiogram of the same ear, got "
                    f"{type(one).__name__}"
                )
        if len(given) == 1:
            return Returning(earlier_of(given[0], nodes_hz, self.domain))
        right, left = given
        return Returning(earlier_of_both(right, left, nodes_hz, self.domain))

    def _folded(self, nodes_hz: tuple[float, ...]) -> Earlier:
        one = self._answers
        return folded(
            self._prior(nodes_hz), one.trials, one.catches, one.presses, self.seed, nodes_hz
        )

    @property
    def _answers(self) -> Listening:
        self.listening.trials = self._trials
        return self.listening

    @property
    def state(self) -> Posterior:
        """What all answers so far say."""
        return self._answers.posterior

    def fork(self) -> Self:
        """Another one with the same trials; what either is told is no concern of the other's.

        Returns:
            The copy.
        """
        other = super().fork()
        other.listening = self.listening.fork()
        return other

    def tell_catch(self, heard: object) -> None:
        """Take the answer to a silent trial: it says how the listener answers."""
        self.listening.catches = (*self.listening.catches, as_heard(heard))
        self._next = None

    def tell_press(self) -> None:
        """Take note of a press of the button when nothing was to be answered."""
        self.listening.presses += 1
        self._next = None

    def _take_silence(self, data: Mapping[str, Any]) -> None:
        for heard in list(data.get("catches", ())):
            self.tell_catch(heard)
        for _ in range(whole(data.get("presses", 0), "presses", 0)):
            self.tell_press()

    @property
    def reliability(self) -> str:
        """good, fair, poor or not assessed: how far the answers can be trusted."""
        return self._answers.reliability

    @property
    def attention(self) -> float:
        """Probability that the listener was attentive at the last tone."""
        return self.state.attention

    @property
    def notes(self) -> tuple[str, ...]:
        """What made the exam doubt its listener, as sentences."""
        return tuple(self._answers.doubts())

    @property
    def done(self) -> bool:
        """Advice: every threshold is known well enough, or enough tones."""
        return len(self._trials) >= self.max_tones or (bool(self._trials) and self.precise)

    @property
    def precise(self) -> bool:
        """Whether every 95 % interval is as narrow as was asked for, and somebody listens.

        A threshold that lies beyond what can be played is known well enough when that is known.
        """
        if self.state.p_idle > self.listening.design.stopping.doubt:
            return False
        for number, ear in enumerate(self._tested):
            ends = np.array([self._reach_at(f, ear) or (0.0, 0.0) for f in self._wanted_hz]).T
            low, middle, high = (
                np.clip(levels, *ends) for levels in self.state.thresholds(self._wanted_hz, number)
            )
            if max((high - middle).max(), (middle - low).max()) > self.precision_db:
                return False
        return True

    def _reach_at(self, frequency_hz: float, ear: str | None = None) -> tuple[float, float] | None:
        """Softest and loudest level that may ever be played there; None for nothing."""
        levels = self.domain.intensity.values
        low, high = levels[0], levels[-1]
        if self.limits is not None:
            offered = np.array(self.domain.smooth[0].values)
            ends = self.limits.range_at(self.domain)
            nearest = int(np.abs(np.log2(offered / frequency_hz)).argmin())
            low, high = max(low, float(ends[0][nearest])), min(high, float(ends[1][nearest]))
        if ear is not None:
            place = np.array([[self.domain.smooth[0].to_model(frequency_hz)]])
            high = min(high, float(self._crossing_levels(the_other(ear), place)[0]))
        elif self.other_ear is not None:
            high = min(high, crossing_level(self.other_ear, self.transducer, frequency_hz))
        return (low, high) if low <= high else None

    def scores(self) -> Array:
        """Score of every candidate (places x levels of the domain), now.

        Where both ears are tested, the right ear's places x levels, then the left one's.

        Returns:
            An array of places x levels.
        """
        return self.state.scores

    def _choose(self) -> Tone:
        return self._tone_at(*first_of_best(self.state.wanted(self._playable())))

    def _crossing_levels(self, listening: str, places: Array) -> Array:
        """Levels from which this ear, by all that is known now, hears what the other is played."""
        if not trials_of(self._trials, listening):
            return np.full(places.shape[0], math.inf)
        axis = self.domain.smooth[0]
        frequencies = [axis.from_model(float(place)) for place in places[:, 0]]
        levels = self.state.thresholds(frequencies, EARS.index(listening))[1]
        softest = self.domain.intensity.values[0]
        return np.asarray(np.maximum(levels, softest) + INTERAURAL_DB[self.transducer])

    def _curves(self, locations: list[tuple[float, ...]], ear: str | None) -> Curves:
        people = self.state.samples(SAMPLES)
        number = 0 if ear is None else EARS.index(ear)
        levels = self.state.at(people.after, [place[0] for place in locations], number)
        return Curves(
            threshold=as_model_units(levels, self.domain),
            spread=np.exp(people.log_spread[:, [number]]) / self.domain.intensity.scale,
            guess=self._chance(FIT).permutation(self._guesses(SAMPLES)),
            lapse=people.lapse,
        )

    def _guesses(self, count: int) -> Array:
        """Guess rates by their probability, so many of them."""
        rates = self.listening.design.answers.guesses
        mass = self.state.mass(0).sum(axis=(0, 2))
        edges = np.cumsum(mass / mass.sum())
        which = np.searchsorted(edges, (np.arange(count) + 0.5) / count)
        return np.array(rates)[np.minimum(which, len(rates) - 1)]

    def lapse_rate(self) -> Estimate:
        """Probability of "missed" in spite of hearing, as the answers leave it.

        Of somebody who attends to the task: tones missed in a row are inattention.

        Returns:
            An `Estimate`: its mean and 95 % interval.
        """
        lapses, counts = np.unique(self.state.samples(SAMPLES).lapse, return_counts=True)
        return rate_estimate(lapses, counts.astype(float))

    def _attentive(self, shape: tuple[int, int], rng: np.random.Generator) -> Mask:
        answers = self.listening.design.answers
        out = np.empty(shape, dtype=bool)
        now = rng.random(shape[0]) >= answers.off_at_start
        for column in range(shape[1]):
            out[:, column] = now
            change = rng.random(shape[0])
            now = np.where(now, change >= answers.goes_off, change < answers.comes_back)
        return out

    def _design(self) -> dict[str, Any]:
        design = {
            **Procedure._design(self),
            "engine": PERSONS,
            "precision_db": self.precision_db,
            "reference": _reference_to(self.reference),
        }
        return design if self.ears is None else {**design, "ears": self.ears, "ear": self.ear}

    def to_dict(self) -> dict[str, Any]:
        """Design and trials as plain JSON data: all that is needed to go on elsewhere.

        Returns:
            Plain values that JSON can hold; `from_dict` reads them back.
        """
        return {
            **super().to_dict(),
            "catches": list(self.listening.catches),
            "presses": self.listening.presses,
        }


def _reference_to(reference: Any) -> dict[str, Any] | None:
    """The reference of a clinical exam as its design keeps it."""
    if reference is None:
        return None
    if isinstance(reference, Mapping):
        return {ear: _reference_to(reference[ear]) for ear in EARS}
    kind = "exam" if isinstance(reference, Exam) else "audiogram"
    return {"kind": kind, "data": reference.to_dict()}


def _reference_from(stored: Mapping[str, Any] | None) -> Any:
    """The reference of a clinical exam from its design."""
    if stored is None:
        return None
    if "kind" not in stored:
        return {ear: _reference_from(stored[ear]) for ear in EARS}
    kind: type[Exam] | type[Audiogram] = Exam if stored["kind"] == "exam" else Audiogram
    return kind.from_dict(stored["data"])
