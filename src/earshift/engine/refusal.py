"""What earshift refuses, as one family of exceptions.

A refusal has a `code` that programs read, a `sentence` that anybody may read, and `advice` on what
to do about it, which is the library's own. The command line and the web turn class and code into
an exit code or a status, and add advice of their own: nobody has to read the sentence to decide.

What was given, and which row or file is meant, are kept apart as well. `str(refusal)` names them,
for who typed them; `sentence` does not, so that no name, code or path of the server leaves with it:

Examples:
    >>> refusal = Refusal("{exam} is of the {ear} ear", exam=7, ear=Plain("left"))
    >>> str(refusal), refusal.sentence
    ('exam 7 is of the left ear', 'the exam is of the left ear')
    >>> str(Refusal("an ear is right or left", got="Left"))
    "an ear is right or left, got 'Left'"
"""

from datetime import date
from typing import Any, Self, TypeVar


class Plain(str):
    """A word for a refusal's sentence that holds nothing anybody typed."""


Kind = TypeVar("Kind", bound="Refusal")


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


_NOTHING: Any = _Nothing()


class Refusal(ValueError):
    """Something that cannot be done as asked; nothing was changed. Every misuse raises one.

    It is a `ValueError`, so that a script may catch either.

    Args:
        sentence: what is wrong, and what was expected.
        code: what a program decides by, such as "invalid", "not-found" or "conflict".
        advice: what to do about it.
        got: what was given instead.
        **named: fills the places of the sentence: a number is a row's ("exam 7", or "the exam" for
            anybody), other text is a file's or person's own.

    Attributes:
        code: what a program decides by.
        sentence: what anybody may read: without what was typed, and without names.
        advice: what to do about it; often empty.

    Examples:
        >>> from earshift import Tone
        >>> try:
        ...     Tone(1, 20)
        ... except Refusal as refusal:
        ...     print(refusal.code, "-", refusal)
        invalid - frequency_hz must lie from 100 to 20000 Hz (not kHz), got 1
    """

    code = "invalid"
    anyone = "the {}"  # what a row or file is called in the sentence that anybody may read

    def __init__(
        self,
        sentence: object,
        *,
        code: str | None = None,
        advice: str = "",
        got: object = _NOTHING,
        **named: object,
    ) -> None:
        self.advice, self.got, self.named = advice, got, named
        if code is not None:
            self.code = code
        self._sentence = str(sentence)
        self.sentence = self._filled({name: self._anyone(name, one) for name, one in named.items()})
        words = self._filled({name: _exactly(name, one) for name, one in named.items()})
        if got is not _NOTHING:
            words += f", got {_as_given(got)}"
        super().__init__(f"{words}; {advice}" if advice else words)

    def _anyone(self, name: str, value: object) -> str:
        return value if isinstance(value, Plain) else self.anyone.format(_kind(name))

    def _filled(self, words: dict[str, str]) -> str:
        # Not by str.format: what stands between the places may quote braces of a file.
        sentence = self._sentence
        for name, word in words.items():
            sentence = sentence.replace(f"{{{name}}}", word)
        return sentence

    def within(self, where: str, **named: object) -> Self:
        """The same refusal, with the place it is about before its sentence.

        Args:
            where: the place, such as "line 3: ".
            **named: fills its places, as in a refusal.

        Returns:
            Another refusal of the same class.
        """
        return self.within_as(type(self), where, **named)

    def within_as(self, kind: type[Kind], where: str, **named: object) -> Kind:
        """The same as another `kind` of refusal; `where` and `named` as of `within`.

        Returns:
            A refusal of that class.
        """
        _, (_, sentence, kept) = self.__reduce__()
        return kind(f"{where}{sentence}", **{**kept, **named})

    def __reduce__(self) -> tuple[Any, tuple[type[Self], str, dict[str, Any]]]:
        # Worker processes send refusals home; the default would lose what is kept apart.
        kept = {"code": self.code, "advice": self.advice, **self.named}
        if self.got is not _NOTHING:
            kept["got"] = self.got
        return _rebuilt, (type(self), self._sentence, kept)


def _rebuilt(kind: type[Refusal], sentence: str, kept: dict[str, Any]) -> Refusal:
    return kind(sentence, **kept)


def _exactly(name: str, value: object) -> str:
    return f"{_kind(name)} {value}" if isinstance(value, int) else str(value)


def _kind(name: str) -> str:
    """What a place stands for; several of a kind are counted: exam_1, exam_2."""
    return name.rstrip("_0123456789")


def _as_given(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if isinstance(value, date) else repr(value)


class NotFound(Refusal):
    """There is no such person, exam, device or file: "there is no {exam}"."""

    code = "not-found"
    anyone = "such {}"


class Conflict(Refusal):
    """It cannot be done in the present state: done already, under way elsewhere, not allowed."""

    code = "conflict"


class Trouble(Refusal):
    """The database or the disk failed; the request itself may be right."""

    code = "trouble"
