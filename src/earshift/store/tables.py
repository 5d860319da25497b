"""The tables of the store, as the newest schema has them, and the types of their columns.

Rows are only ever added. What changes over time (an identity, the state of an exam, a void) is a
table of its own whose newest row counts. Identities stand apart from all else, and so does every
text that somebody typed about a person (`texts`): both can be erased while the rest stays.
"""

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Date,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)

from earshift.engine.refusal import Refusal

SCHEMA = "0005"  # the newest migration; a database with another one is upgraded or refused
VERSION_TABLE = "earshift_schema"  # its presence says that a database is ours


class UtcDateTime(TypeDecorator[datetime]):
    """A moment in UTC. SQLite would drop the offset silently, so there it is text that says Z."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        plain = String(27) if dialect.name == "sqlite" else DateTime(timezone=True)
        return dialect.type_descriptor(plain)

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        moment = as_utc(value, "a time")
        if dialect.name != "sqlite":
            return moment
        # Always of the same length, so that it sorts as text.
        return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        stored = datetime.fromisoformat(value) if dialect.name == "sqlite" else value
        return as_utc(stored, "a stored time")


def as_utc(value: object, what: str) -> datetime:
    """The moment in UTC; a time without its zone is refused, as nobody knows when it was."""
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise Refusal(f"{what} must be a datetime with its time zone", got=value)
    return value.astimezone(UTC)


Id = BigInteger().with_variant(Integer, "sqlite")
metadata = MetaData()


def new_salt() -> str:
    return secrets.token_hex(16)


def _table(
    name: str,
    *columns: Any,
    erased_with: str | None = None,
    chained: bool = True,
    rebuilt: bool = False,
    typed: Sequence[str] = (),
) -> Table:
    """A table. `erased_with` is "identity" or "trials" where a person's erasure lets rows go.

    What is `typed` about a person is part of the record and no column here: it lies in `texts`.
    """
    if erased_with is not None:  # without it, nobody can tell from a digest what was erased
        columns = (*columns, Column("salt", Text, nullable=False, default=new_salt))
    # Without AUTOINCREMENT SQLite would give the id of an erased row to a new one.
    return Table(
        name,
        metadata,
        Column("id", Id, primary_key=True),
        *columns,
        sqlite_autoincrement=True,
        info={
            "rebuilt": rebuilt,
            "chained": chained and not rebuilt,
            "erased_with": erased_with,
            "typed": tuple(typed),
        },
    )


people = _table("people", Column("created_at", UtcDateTime, nullable=False))

identities = _table(
    "identities",
    Column("person_id", Id, ForeignKey("people.id"), nullable=False),
    Column("code", Text),
    Column("name", Text),
    Column("birth_date", Date),
    Column("sex", Text),
    Column("found_by", Text, nullable=False),  # code and name, case folded, for the search
    Column("at", UtcDateTime, nullable=False),
    Column("author", Text, nullable=False),
    Column("department", Text),
    Column("job", Text),
    Column("hired_on", Date),
    Column("left_on", Date),
    Index("identities_of_person", "person_id", "id"),
    Index("identities_by_code", "code"),
    erased_with="identity",
    typed=("reason",),
)

erasures = _table(
    "erasures",
    Column("person_id", Id, ForeignKey("people.id"), nullable=False, unique=True),
    Column("at", UtcDateTime, nullable=False),
    Column("author", Text, nullable=False),
    Column("reason", Text, nullable=False),  # one of `acts.ERASURE_REASONS`
    Column("trials_deleted", Boolean, nullable=False),
)

devices = _table(
    "devices",
    Column("name", Text, nullable=False),
    Column("transducer", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("serial", Text, nullable=False),
    Column("fingerprint", JSON, nullable=False, default=dict),
)

calibrations = _table(
    "calibrations",
    Column("device_id", Id, ForeignKey("devices.id"), nullable=False),
    Column("done_on", Date, nullable=False),
    Column("due_on", Date, nullable=False),
    Column("laboratory", Text, nullable=False),  # of a daily check the listener, in `texts`
    Column("coupler", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("table", JSON, nullable=False),
    Index("calibrations_of_device", "device_id", "done_on"),
)

visits = _table(
    "visits",
    Column("person_id", Id, ForeignKey("people.id"), nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("zone", Text, nullable=False),
    Column("mode", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("device_id", Id, ForeignKey("devices.id")),
    Index("visits_of_person", "person_id", "id"),
    erased_with="trials",
    typed=("checklist",),
)

exams = _table(
    "exams",
    Column("visit_id", Id, ForeignKey("visits.id"), nullable=False),
    Column("ear", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("design", JSON, nullable=False),
    Column("engine_version", Text, nullable=False),
    Column("reference_exam_id", Id, ForeignKey("exams.id")),
    Column("measured_at", UtcDateTime),
    Column("delivery", JSON, nullable=False, default=dict),
    Index("exams_of_visit", "visit_id", "id"),
    Index("exams_by_reference", "reference_exam_id"),  # erasing looks here, as foreign keys do
    erased_with="trials",
    typed=("source",),
)

exam_states = _table(
    "exam_states",
    Column("exam_id", Id, ForeignKey("exams.id"), nullable=False),
    Column("state", Text, nullable=False),
    Column("engine_version", Text, nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("author", Text, nullable=False),
    Column("after_trial", Integer),  # how many trials there were; not known of older rows
    Index("exam_states_of_exam", "exam_id", "id"),
    erased_with="trials",
    typed=("reason",),
)

trials = _table(
    "trials",
    Column("exam_id", Id, ForeignKey("exams.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("ear", Text, nullable=False),
    Column("frequency_hz", Double, nullable=False),
    Column("asked_db_hl", Double),
    Column("played_db_hl", Double),
    Column("heard", Boolean, nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("author", Text, nullable=False),
    Column("reaction_ms", Double),
    UniqueConstraint("exam_id", "number", name="trials_number_in_exam"),
    erased_with="trials",
)

voids = _table(
    "voids",
    Column("trial_id", Id, ForeignKey("trials.id"), nullable=False, unique=True),
    Column("at", UtcDateTime, nullable=False),
    Column("author", Text, nullable=False),
    erased_with="trials",
    typed=("reason",),
)

results = _table(
    "results",
    Column("exam_id", Id, ForeignKey("exams.id"), nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("author", Text, nullable=False),
    Column("shown", JSON, nullable=False),
    Column("settings", JSON, nullable=False),
    Column("engine_version", Text, nullable=False),
    Column(
        "trial_numbers", JSON, nullable=False
    ),  # which trials the hash is of: later ones may come
    Column("trials_sha256", Text, nullable=False),
    Index("results_of_exam", "exam_id", "id"),
    erased_with="trials",
)

notes = _table(
    "notes",
    Column("person_id", Id, ForeignKey("people.id"), nullable=False),
    Column("visit_id", Id, ForeignKey("visits.id")),
    Column("exam_id", Id, ForeignKey("exams.id")),
    Column("at", UtcDateTime, nullable=False),
    Column("author", Text, nullable=False),
    Index("notes_of_person", "person_id", "id"),
    Index("notes_of_visit", "visit_id"),
    Index("notes_of_exam", "exam_id"),
    erased_with="identity",
    typed=("text",),
)

# All that somebody typed about a person, whatever row it belongs to: it goes with the identity,
# also where the row stays. Of two records of one person it goes with either. Text about somebody
# who has no record (who listened in a daily check) goes with whoever is erased under that name.
texts = _table(
    "texts",
    Column("person_id", Id, ForeignKey("people.id")),
    Column("owner_id", Id, ForeignKey("people.id")),  # whose the record was then, if another's
    Column("of_table", Text, nullable=False),
    Column("row_id", Id, nullable=False),
    Column("field", Text, nullable=False),
    Column("text", Text, nullable=False),
    UniqueConstraint("of_table", "row_id", "field", name="texts_one_each"),
    Index("texts_of_person", "person_id"),
    Index("texts_of_owner", "owner_id"),
    erased_with="identity",
)

# Ids that say nothing and cannot be guessed, for addresses in a browser.
handles = _table(
    "handles",
    Column("kind", Text, nullable=False),
    Column("row_id", BigInteger, nullable=False),
    Column("handle", Text, nullable=False, unique=True),
    UniqueConstraint("kind", "row_id", name="handles_one_each"),
)

presses = _table(
    "presses",
    Column("exam_id", Id, ForeignKey("exams.id"), nullable=False),
    Column("number", Integer, nullable=False),  # of the presentation it came in or before
    Column("after_onset_ms", Double),
    Column("at", UtcDateTime, nullable=False),
    Column("author", Text, nullable=False),
    Index("presses_of_exam", "exam_id", "id"),
    erased_with="trials",
)

baselines = _table(
    "baselines",
    Column("person_id", Id, ForeignKey("people.id"), nullable=False),
    Column("ear", Text, nullable=False),
    Column("exam_id", Id, ForeignKey("exams.id"), nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("author", Text, nullable=False),
    Index("baselines_of_person", "person_id", "id"),
    Index("baselines_by_exam", "exam_id"),
    erased_with="trials",
    typed=("reason",),
)

# A reviewer's last word on a verdict: nothing more has to be done, or it has after all.
closings = _table(
    "closings",
    Column("exam_id", Id, ForeignKey("exams.id"), nullable=False),
    Column("closed", Boolean, nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("author", Text, nullable=False),
    Index("closings_of_exam", "exam_id", "id"),
    erased_with="trials",
    typed=("reason", "ears"),
)

# Two records of one person: the visits of the first are the second's. Without `into_id` they are
# two people again.
merges = _table(
    "merges",
    Column("person_id", Id, ForeignKey("people.id"), nullable=False),
    Column("into_id", Id, ForeignKey("people.id")),
    Column("at", UtcDateTime, nullable=False),
    Column("author", Text, nullable=False),
    Index("merges_of_person", "person_id", "id"),
    Index("merges_into", "into_id"),
    erased_with="trials",
    typed=("reason",),
)

site_settings = _table(
    "site_settings",
    Column("name", Text, nullable=False),
    Column("value", JSON, nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("author", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Index("site_settings_by_name", "name", "id"),
)

# A professional's word on whether a shift is related to work; None takes it back.
work_relations = _table(
    "work_relations",
    Column("exam_id", Id, ForeignKey("exams.id"), nullable=False),
    Column("related", Boolean),
    Column("at", UtcDateTime, nullable=False),
    Column("author", Text, nullable=False),
    Column("name", Text, nullable=False),
    Index("work_relations_of_exam", "exam_id", "id"),
    erased_with="trials",
    typed=("reason", "ears"),
)

# Who signed a visit, when, and what that means. What was signed stands apart, so that it can be
# erased with the person; its hash stays here. An amendment names the signature before it.
signatures = _table(
    "signatures",
    Column("person_id", Id, ForeignKey("people.id"), nullable=False),  # whose visit it is
    Column("owner_id", Id, ForeignKey("people.id"), nullable=False),  # whose name was on it
    Column("visit_id", Id, nullable=False),  # may be erased, and so is no foreign key
    Column("amends_id", Id, ForeignKey("signatures.id")),
    Column("at", UtcDateTime, nullable=False),
    Column("author", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("meaning", Text, nullable=False),
    Column("sha256", Text, nullable=False),
    Index("signatures_of_visit", "visit_id", "id"),
    Index("signatures_of_person", "person_id", "id"),
)

signed = _table(
    "signed",
    Column("signature_id", Id, ForeignKey("signatures.id"), nullable=False, unique=True),
    Column("person_id", Id, ForeignKey("people.id"), nullable=False),
    Column("owner_id", Id, ForeignKey("people.id"), nullable=False),  # it goes with either
    Column("content", Text, nullable=False),  # canonical JSON; text, as the hash is of its bytes
    Column("about", JSON, nullable=False),  # what lists read of it: exams, and since when a shift
    Index("signed_of_person", "person_id"),
    Index("signed_of_owner", "owner_id"),
    erased_with="identity",
)

# What was done about a shift, by visit and kind; the newest row of a kind counts.
follow_ups = _table(
    "follow_ups",
    Column("person_id", Id, ForeignKey("people.id"), nullable=False),
    Column("visit_id", Id, ForeignKey("visits.id"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("done", Boolean, nullable=False),
    Column("done_on", Date, nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("author", Text, nullable=False),
    Index("follow_ups_of_visit", "visit_id", "id"),
    Index("follow_ups_of_person", "person_id", "id"),
    erased_with="identity",
    typed=("done_by", "details"),
)

room_noise = _table(
    "room_noise",
    Column("measured_on", Date, nullable=False),
    Column("device_id", Id, ForeignKey("devices.id")),  # where it stands; None: the whole site
    Column("room", Text, nullable=False),
    Column("instrument", Text, nullable=False),
    Column("levels", JSON, nullable=False),  # octave band in Hz to dB SPL
    Column("at", UtcDateTime, nullable=False),
    Column("author", Text, nullable=False),
    Index("room_noise_by_day", "device_id", "measured_on", "id"),
)

users = _table(
    "users",
    Column("name", Text, nullable=False, unique=True),
    Column("created_at", UtcDateTime, nullable=False),
)

user_states = _table(
    "user_states",
    Column("user_id", Id, ForeignKey("users.id"), nullable=False),
    Column("role", Text, nullable=False),
    Column("password_hash", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("author", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("temporary", Boolean),  # a password that somebody else chose, to be changed at first use
    Index("user_states_of_user", "user_id", "id"),
)

# The newest row of a user counts; without a secret, there is no second factor any more.
second_factors = _table(
    "second_factors",
    Column("user_id", Id, ForeignKey("users.id"), nullable=False),
    Column("secret", Text),
    Column("recovery_sha256", JSON, nullable=False),  # of codes that work once, without the secret
    Column("at", UtcDateTime, nullable=False),
    Column("author", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Index("second_factors_of_user", "user_id", "id"),
)

code_uses = _table(
    "code_uses",
    Column("factor_id", Id, ForeignKey("second_factors.id"), nullable=False),
    Column("code", Text, nullable=False),  # the half minute that a code was of, or a recovery code
    Column("at", UtcDateTime, nullable=False),
    UniqueConstraint("factor_id", "code", name="code_uses_once"),
)

# Sessions, API tokens and listener links: whoever holds the secret may do what the scope says.
keys = _table(
    "keys",
    Column("kind", Text, nullable=False),
    Column("secret_sha256", Text, nullable=False, unique=True),
    Column("user_id", Id, ForeignKey("users.id")),
    Column("name", Text, nullable=False),
    Column("scope", JSON, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime),
    Column("author", Text, nullable=False),
    Index("keys_of_user", "user_id", "id"),
    Index("keys_by_name", "name"),  # links and releases are found by their visit
)

key_ends = _table(
    "key_ends",
    Column("key_id", Id, ForeignKey("keys.id"), nullable=False, unique=True),
    Column("at", UtcDateTime, nullable=False),
    Column("author", Text, nullable=False),
    Column("reason", Text, nullable=False),
)

login_attempts = _table(
    "login_attempts",
    Column("name_sha256", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("succeeded", Boolean, nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("trusted", Text),  # the known browser, session or pass that it was made with
    Index("login_attempts_by_name", "name_sha256", "at"),
    Index("login_attempts_by_address", "address", "at"),
    Index("login_attempts_by_trusted", "trusted", "at"),
    chained=False,
)

audit = _table(
    "audit",
    Column("at", UtcDateTime, nullable=False),
    Column("author", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("reason", Text, nullable=False),  # of what is about no person; else it is in `texts`
    Column("details", JSON, nullable=False),
    Index("audit_of_subject", "subject", "id"),
)

# Over all of the above: see `store.chain`.
chain = _table(
    "chain",
    Column("entries", Text, nullable=False),
    Column("sha256", Text, nullable=False),
    chained=False,
)

# What follows holds nothing that the tables above do not say. It is worked out from them again for
# everybody in `stale`, where triggers put whoever something new is known of. Days are counted as
# `date.toordinal` does, so that both databases can add to them.

SAYS_OF_PEOPLE = (
    *("people", "identities", "erasures", "merges"),
    *("exam_states", "results", "closings", "baselines"),
    *("work_relations", "signatures", "follow_ups"),
)  # tables whose new rows mark a person as stale
stale = _table(
    "stale",
    Column("person_id", Id, nullable=False),
    Index("stale_by_person", "person_id"),
    rebuilt=True,
)

# What a search reads: one short row for everybody, kept by triggers on `identities`.
names = _table(
    "names",
    Column("person_id", Id, ForeignKey("people.id"), nullable=False, unique=True),
    Column("found_by", Text, nullable=False),  # of the newest identity; gone when that is erased
    rebuilt=True,
)

standings = _table(
    "standings",
    Column("person_id", Id, ForeignKey("people.id"), nullable=False, unique=True),
    Column("code", Text),
    Column("name", Text),
    Column("found_by", Text, nullable=False),
    Column("department", Text),
    Column("job", Text),
    Column("from_day", Integer, nullable=False),  # hired, or first stored
    Column("left_day", Integer),
    Column("full_day", Integer),  # by the ear whose full audiogram is the older one
    Column("full_ears", Text, nullable=False),  # whose: what is due of
    Column("any_day", Integer),  # the same for tests of any kind
    Column("any_ears", Text, nullable=False),
    # All that the count and the order of a long list ask for, so that no row has to be looked up.
    Index("standings_by_full_day", "full_day", "from_day", "person_id", "left_day"),
    Index("standings_by_any_day", "any_day", "from_day", "person_id", "left_day"),
    Index("standings_by_department", "department"),
    Index("standings_by_job", "job"),
    rebuilt=True,
)

tasks = _table(
    "tasks",
    Column("person_id", Id, ForeignKey("people.id"), nullable=False),
    Column("why", Text, nullable=False),
    Column("ears", Text, nullable=False),
    Column("day", Integer, nullable=False),  # of the exam that calls for it
    Column("exam_id", Id, ForeignKey("exams.id"), nullable=False),
    Index("tasks_of_person", "person_id"),
    Index("tasks_by_day", "why", "day"),
    Index("tasks_by_exam", "exam_id"),
    rebuilt=True,
)

tested = _table(
    "tested",
    Column("person_id", Id, ForeignKey("people.id"), nullable=False),
    Column("exam_id", Id, ForeignKey("exams.id"), nullable=False),
    Column("ear", Text, nullable=False),
    Column("day", Integer, nullable=False),
    Column("complete", Boolean, nullable=False),  # thresholds at all six frequencies
    Column("shift", Text, nullable=False),  # "", waiting, confirmed or not confirmed
    # Whether somebody was tested in a period, and whose shift was found in it, without any row.
    Index("tested_of_person", "person_id", "complete", "day"),
    Index("tested_by_shift", "shift", "day", "person_id"),
    Index("tested_by_exam", "exam_id"),
    rebuilt=True,
)
