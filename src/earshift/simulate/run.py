"""A procedure and somebody who answers it: asks, tells, and asks again until it is over."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from earshift.engine.refusal import Refusal


class Procedure(Protocol):
    """What can be run: an exam or a screen, of one ear or of both, on any domain."""

    @property
    def done(self) -> bool: ...

    def ask(self) -> Any: ...

    def tell(self, stimulus: Any, heard: bool, /) -> None: ...


AnyProcedure = TypeVar("AnyProcedure", bound=Procedure)
Answerer = Callable[[Any], bool]


def run(
    procedure: AnyProcedure,
    listener: Answerer | Mapping[str, Answerer],
    tones: int | None = None,
) -> AnyProcedure:
    """Run a procedure with a listener until it is done, and give it back.

    A mapping from ear to listener answers a procedure of both ears. With `tones`, exactly so many
    more are played, whether the procedure is done before or not.

    Args:
        procedure: an exam or a screen.
        listener: answers a stimulus; or a mapping from ear to such.
        tones: how many to play; by default as many as it takes.

    Returns:
        The procedure, with its answers.

    Raises:
        Refusal: for a tone of an ear that has no listener.

    Examples:
        >>> import earshift as es
        >>> exam = run(es.Exam(seed=1, max_tones=5), es.Listener.of_class("mild", seed=2))
        >>> len(exam.trials)
        5
    """
    for _ in steps(procedure, listener, tones):
        pass
    return procedure


def steps(
    procedure: Procedure,
    listener: Answerer | Mapping[str, Answerer],
    tones: int | None = None,
) -> Iterator[tuple[Any, bool]]:
    """The same step by step: every stimulus and its answer, once the procedure has been told."""
    answer = _of_both_ears(listener) if isinstance(listener, Mapping) else listener
    played = 0
    while played < tones if tones is not None else not procedure.done:
        stimulus = procedure.ask()
        heard = answer(stimulus)
        procedure.tell(stimulus, heard)
        played += 1
        yield stimulus, heard


def _of_both_ears(listeners: Mapping[str, Answerer]) -> Answerer:
    def answer(tone: Any) -> bool:
        if tone.ear not in listeners:
            raise Refusal(
                f"a tone for the {tone.ear} ear, but listeners only for "
                f"{', '.join(listeners) or 'none'}: give one listener, or one for each ear"
            )
        return listeners[tone.ear](tone)

    return answer
