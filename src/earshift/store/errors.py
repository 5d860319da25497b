"""What the store refuses; trouble with the database or the disk is a class of its own."""

from earshift.engine.refusal import Conflict, NotFound, Refusal, Trouble


class StoreError(Refusal):
    """The store cannot do what was asked; the data are as they were."""


class NoSuchRow(StoreError, NotFound):
    """There is no such person, exam, user or token in the store."""


class StoreConflict(StoreError, Conflict):
    """What is stored already stands against it: a state, a name that is taken, an erasure."""


class ExamChanged(StoreConflict):
    """Another program has answered, paused or closed the exam; nothing was taken here."""

    code = "moved-on"


class StoreTrouble(StoreError, Trouble):
    """The database or the disk failed; the request itself may be right."""
