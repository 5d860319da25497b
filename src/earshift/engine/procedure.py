"""What every exam and screen is: a design, trials, and one tone to ask next.

They are folds over their trials: design + trials rebuild every state, a fit never starts from an
earlier one, and chance comes from (seed, number of trials) alone. So asking twice gives the same
tone, and an exam read back from a file asks what the unbroken one would have asked.
"""

import copy
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from earshift.engine.audiogram import Audiogram
from earshift.engine.checks import as_heard, whole
from earshift.engine.domain import Domain, as_domain
from earshift.engine.ears import ear_of, tested_ears
from earshift.engine.limits import Limits, allowed
from earshift.engine.refusal import Refusal
from earshift.engine.tone import Asked, Stimulus, Tone, Trial
from earshift.engine.views import Viewed

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

SCHEMA = 1  # of to_dict

# Separate streams of chance for separate purposes, so that none depends on whether another ran.
PICK, SAMPLE, FIT = 1, 2, 3


def chance(seed: int, count: int, purpose: int) -> np.random.Generator:
    """The stream of chance after so many trials, for one purpose."""
    return np.random.default_rng((seed, count, purpose))


class Procedure(Viewed):
    """What an `Exam` and a `Screen` have in common; see there for the parameters."""

    kind: ClassVar[str]

    def __init__(
        self,
        *,
        ears: str | None,
        seed: int,
        max_tones: int,
        domain: str | Domain,
        limits: Limits | None,
        other_ear: Audiogram | None,
        transducer: str,
    ) -> None:
        self.ears = ears
        self._tested = tested_ears(ears)
        self.seed = whole(seed, "seed", 0)
        self.max_tones = whole(max_tones, "max_tones", 1)
        self.domain = as_domain(domain)
        if limits is not None and not isinstance(limits, Limits):
            raise Refusal("limits must be earshift.Limits or None", got=limits)
        self.limits = limits
        allowed(limits, self.domain, ())  # refuses limits that leave nothing to play
        self.other_ear, self.transducer = other_ear, transducer
        if ears is not None and other_ear is not None:
            raise Refusal(f"other_ear is for {self._a_kind} of one ear: this one tests both")
        if ears is not None and not self.domain.of_tones:
            raise Refusal("both ears need a domain of tones: other stimuli have no ear")
        self._trials: tuple[Trial, ...] = ()
        self._next: tuple[int, Tone] | None = None

    @property
    def _a_kind(self) -> str:
        return "an exam" if self.kind == "exam" else f"a {self.kind}"

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All answered tones, with their answers, in order."""
        return self._trials

    def tell(self, tone: Tone | Stimulus, heard: object) -> None:
        """Take the answer to a tone, asked for or not. Bad input changes nothing.

        Args:
            tone: what was presented; where both ears are tested, with its ear.
            heard: True or False (1 and 0 are taken); of a forced choice, whether it was correct.

        Raises:
            Refusal: for a tone outside the domain or an answer that is neither.

        Examples:
            >>> import earshift as es
            >>> exam = es.Exam()
            >>> exam.tell(es.Tone(1000, 40), heard=True)
            >>> exam.trials
            (Trial(tone=Tone(frequency_hz=1000.0, level_db_hl=40.0, ear=None), heard=True),)
        """
        trial = Trial(self.domain.check(tone), as_heard(heard))
        self._take(trial, None if self.ears is None else ear_of(tone))

    def _take(self, trial: Trial, ear: str | None) -> None:
        """Add a trial of an ear, which is None where only one is tested."""
        self._trials = (*self._trials, trial)

    def undo(self) -> Trial:
        """Take back the answer to the last tone, and give that trial.

        What is left is as if it had never been told: the same next tone, the same numbers. Answers
        to silence and presses stay.

        Returns:
            The trial that was taken back.

        Raises:
            Refusal: where no tone has been answered yet.

        Examples:
            >>> import earshift as es
            >>> exam = es.Exam()
            >>> exam.tell(es.Tone(1000, 40), heard=True)
            >>> exam.undo().heard, len(exam.trials)
            (True, 0)
        """
        if not self._trials:
            raise Refusal("there is no answer to take back: no tone has been answered yet")
        last = self._trials[-1]
        self._drop(last, None if self.ears is None else ear_of(last.tone))
        return last

    def _drop(self, trial: Trial, ear: str | None) -> None:
        """Forget the last trial, and what was computed from it."""
        self._trials, self._next = self._trials[:-1], None

    @property
    def _shown_ears(self) -> tuple[str | None, ...]:
        return self._tested

    def ask(self) -> Asked:
        """The tone to play next. Asking again gives the same tone until it is answered.

        On a domain with other axes than a tone's it is a `Stimulus` with these axes' names.

        Returns:
            A `Tone`, with its ear where both are tested; on other axes than a tone's a `Stimulus`.

        Raises:
            Refusal: where the limits leave nothing to play.

        Examples:
            >>> import earshift as es
            >>> exam = es.Exam(seed=1)
            >>> exam.ask() == exam.ask()
            True
        """
        count = len(self._trials)
        if self._next is None or self._next[0] != count:
            self._next = (count, self._choose())
        return cast(Asked, self._next[1])

    def fork(self) -> Self:
        """Another one with the same trials; what either is told is no concern of the other's.

        Returns:
            The copy.

        Examples:
            >>> import earshift as es
            >>> exam = es.Exam()
            >>> what_if = exam.fork()
            >>> what_if.tell(es.Tone(1000, 40), heard=True)
            >>> len(exam.trials), len(what_if.trials)
            (0, 1)
        """
        return copy.copy(self)

    @property
    @abstractmethod
    def done(self) -> bool:
        """Advice: nothing more is needed. Asking and telling go on working."""

    @abstractmethod
    def scores(self) -> Array:
        """Score of every candidate (places x levels of the domain) by the strategy, now.

        Where both ears are tested, the right ear's places x levels, then the left one's.
        """

    @abstractmethod
    def _playable_in(self, ear: str | None) -> Mask:
        """Which candidates may be played to this ear now."""

    def _playable(self) -> Mask:
        """Which candidates may be played now, in the rows and columns of the scores."""
        return np.vstack([self._playable_in(ear) for ear in self._tested])

    def _choose(self) -> Tone:
        from earshift.engine import choose  # with compiled kernels: loaded where they are needed

        mask = self._playable()
        place, level = choose.pick(self.scores(), mask, self._chance(PICK))
        return self._tone_at(place, level)

    def _tone_at(self, row: int, level: int) -> Tone:
        """The tone in this row and column of the scores."""
        number, place = divmod(row, self.domain.shape[0])
        return for_ear(self.domain.tone(place, level), self._tested[number])

    def _chance(self, purpose: int) -> np.random.Generator:
        return chance(self.seed, len(self._trials), purpose)

    def _design(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "max_tones": self.max_tones,
            "domain": self.domain.to_dict(),
            "limits": None if self.limits is None else self.limits.to_dict(),
            "other_ear": None if self.other_ear is None else self.other_ear.to_dict(),
            "transducer": self.transducer,
        }

    def to_dict(self) -> dict[str, Any]:
        """Design and trials as plain JSON data: all that is needed to go on elsewhere.

        Returns:
            Plain values that JSON can hold; `from_dict` reads them back.
        """
        return {
            "kind": self.kind,
            "schema": SCHEMA,
            "design": self._design(),
            "trials": [trial.to_dict() for trial in self._trials],
        }

    @classmethod
    @abstractmethod
    def _from_design(cls, design: dict[str, Any]) -> Self:
        """From the settings that `to_dict` wrote down, without trials."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild an exam from `to_dict`'s data; it asks the same next tone.

        Args:
            data: what `to_dict` gave, or what `Handler.saveAsJson` wrote.

        Returns:
            The exam or screen, with its answers.

        Raises:
            Refusal: for data of another kind.

        Examples:
            >>> import json
            >>> import earshift as es
            >>> exam = es.Exam(seed=1)
            >>> exam.tell(es.Tone(1000, 40), heard=True)
            >>> text = json.dumps(exam.to_dict())
            >>> es.Exam.from_dict(json.loads(text)).ask() == exam.ask()
            True
        """
        if isinstance(data, Mapping) and "kind" not in data and "exam" in data:
            data = data["exam"]
        try:
            if data["kind"] != cls.kind or data["schema"] != SCHEMA:
                raise Refusal(
                    f"expected data of kind {cls.kind!r}, schema {SCHEMA}, "
                    f"got {data['kind']!r}, {data['schema']!r}"
                )
            design = dict(data["design"])
            _ = design["seed"], design["max_tones"]  # a default here would ask other tones
            design["domain"] = Domain.from_dict(design["domain"])
            design["limits"] = None if design["limits"] is None else Limits(**design["limits"])
            if design.get("other_ear") is not None:
                design["other_ear"] = Audiogram.from_dict(design["other_ear"])
            procedure = cls._from_design(design)
            trials = [Trial.from_dict(row) for row in data["trials"]]
        except (KeyError, TypeError, AttributeError) as error:
            raise Refusal(f"not the data of an earshift {cls.kind}: {error!r}") from None
        for trial in trials:
            procedure.tell(trial.tone, trial.heard)
        procedure._take_silence(data)
        return procedure

    @abstractmethod
    def _take_silence(self, data: Mapping[str, Any]) -> None:
        """Take stored answers to silent trials and presses, where they count."""


def for_ear(tone: Tone, ear: str | None) -> Tone:
    """The tone for this ear; where only one is tested (None), as it is."""
    return tone if ear is None else replace(tone, ear=ear)
