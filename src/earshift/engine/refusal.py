"""What earshift refuses, as one family of exceptions.

A refusal has a `code` that programs read, a `sentence` that says what is wrong, and `advice` on
what to do about it, which is the library's own. The command line and the web turn the code into an
exit code or a status, and add advice of their own: nobody has to read the sentence to decide.
"""


class Refusal(ValueError):
    """Something that cannot be done as asked; nothing was changed."""

    code = "invalid"

    def __init__(self, sentence: object, *, code: str | None = None, advice: str = "") -> None:
        self.sentence, self.advice = str(sentence), advice
        if code is not None:
            self.code = code
        super().__init__(f"{self.sentence}; {advice}" if advice else self.sentence)

    def __reduce__(self) -> tuple[object, ...]:
        # Worker processes send refusals home; the default would lose what is kept apart.
        return _rebuilt, (type(self), self.sentence, self.code, self.advice)


def _rebuilt(kind: type[Refusal], sentence: str, code: str, advice: str) -> Refusal:
    return kind(sentence, code=code, advice=advice)


class NotFound(Refusal):
    """There is no such person, exam, device or file."""

    code = "not-found"


class Conflict(Refusal):
    """It cannot be done in the present state: done already, under way elsewhere, not allowed."""

    code = "conflict"


class Trouble(Refusal):
    """The database or the disk failed; the request itself may be right."""

    code = "trouble"
