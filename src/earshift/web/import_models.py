"""What goes over the wire about files: columns, what an import does, every row refused."""

from datetime import date

from earshift.web.models import Answer, Person


class FileColumn(Answer):
    """A column of a file, and what it is read as; an empty name is not used."""

    theirs: str
    ours: str


class FileColumns(Answer):
    columns: list[FileColumn]
    meanings: list[str]  # what a column can be mapped to
    zone: str  # of times that name none, unless another is given


class RowReason(Answer):
    row: int
    reason: str


class Imported(Answer):
    """What a file holds, and what of it was stored; after a preview nothing was."""

    added: int
    known: int
    people: list[Person]
    preview: bool
    sound: int  # audiograms that can be stored
    rejected: list[RowReason]  # the first of them
    rejected_total: int
    left_out: list[RowReason]
    left_out_total: int


class FieldChange(Answer):
    field: str
    before: str | date | None
    after: str | date | None


class PersonChange(Answer):
    row: int | None
    person: Person
    fields: list[FieldChange]


class NewEmployee(Answer):
    row: int
    code: str
    name: str | None
    department: str | None


class RosterChanges(Answer):
    """What a roster changes; lists hold the first lines, the totals all of them."""

    preview: bool
    plan: str  # names just these changes: sent back, nothing else is done
    new: list[NewEmployee]
    new_total: int
    changed: list[PersonChange]
    changed_total: int
    same: int
    leavers: list[Person]
    leavers_total: int
    leavers_marked: bool
    duplicates: list[tuple[str, str]]
    duplicates_total: int
    rejected: list[RowReason]
    rejected_total: int
