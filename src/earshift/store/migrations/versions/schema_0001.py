"""The first schema, and the triggers that make it append-only.

Frozen: written out here and not taken from `tables`, which moves on with later schemas.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

from earshift.store.tables import UtcDateTime

revision = "0001"
down_revision = None

ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")

# Which person a row belongs to, as SQL on the row {row}: an erasure lets exactly these rows go.
VISIT = "SELECT person_id FROM visits WHERE id = {row}.visit_id"
EXAM = (
    "SELECT visits.person_id FROM exams JOIN visits ON visits.id = exams.visit_id "
    "WHERE exams.id = {row}.exam_id"
)
TRIAL = (
    "SELECT visits.person_id FROM trials JOIN exams ON exams.id = trials.exam_id "
    "JOIN visits ON visits.id = exams.visit_id WHERE trials.id = {row}.trial_id"
)
OWNER = {
    "identities": "{row}.person_id",
    "notes": "{row}.person_id",
    "visits": "{row}.person_id",
    "exams": f"({VISIT})",
    "exam_states": f"({EXAM})",
    "trials": f"({EXAM})",
    "results": f"({EXAM})",
    "voids": f"({TRIAL})",
}
GOES_WITH_IDENTITY = ("identities", "notes")  # the others only if the trials go too
NEVER_DELETED = ("people", "erasures", "devices", "calibrations", "audit")

# What a row must not share with an older one. SQLite's REPLACE would delete that one unseen.
UNIQUE = {
    "erasures": "person_id = NEW.person_id",
    "trials": "exam_id = NEW.exam_id AND number = NEW.number",
    "voids": "trial_id = NEW.trial_id",
}


def _table(name: str, *columns: Any) -> None:
    op.create_table(
        name, sa.Column("id", ID, primary_key=True), *columns, sqlite_autoincrement=True
    )


def _text(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=False) for name in names]


def _at(name: str = "at", nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, UtcDateTime, nullable=nullable)


def _of(table: str, name: str, nullable: bool = False, unique: bool = False) -> sa.Column[int]:
    return sa.Column(name, ID, sa.ForeignKey(f"{table}.id"), nullable=nullable, unique=unique)


def _json(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.JSON, nullable=False)


def upgrade() -> None:
    _make_tables()
    _make_indexes()
    for table in (*OWNER, *NEVER_DELETED):
        if op.get_bind().dialect.name == "sqlite":
            _guard_sqlite(table)
        else:
            _guard_postgresql(table)
    _audit_erasures()


def _make_tables() -> None:
    _table("people", _at("created_at"))
    _table(
        "identities",
        _of("people", "person_id"),
        sa.Column("code", sa.Text),
        sa.Column("name", sa.Text),
        sa.Column("birth_date", sa.Date),
        sa.Column("sex", sa.Text),
        *_text("found_by"),
        _at(),
        *_text("author", "reason"),
    )
    _table(
        "erasures",
        _of("people", "person_id", unique=True),
        _at(),
        *_text("author", "reason"),
        sa.Column("trials_deleted", sa.Boolean, nullable=False),
    )
    _table("devices", *_text("name", "transducer", "model", "serial"))
    _table(
        "calibrations",
        _of("devices", "device_id"),
        sa.Column("done_on", sa.Date, nullable=False),
        sa.Column("due_on", sa.Date, nullable=False),
        *_text("laboratory", "coupler", "kind"),
        _json("table"),
    )
    _table(
        "visits",
        _of("people", "person_id"),
        _at("started_at"),
        *_text("zone", "mode", "author"),
        _of("devices", "device_id", nullable=True),
        _json("checklist"),
    )
    _table(
        "exams",
        _of("visits", "visit_id"),
        *_text("ear", "kind"),
        _json("design"),
        *_text("engine_version"),
        _of("exams", "reference_exam_id", nullable=True),
        _at("measured_at", nullable=True),
        *_text("source"),
    )
    _table(
        "exam_states",
        _of("exams", "exam_id"),
        *_text("state", "engine_version"),
        _at(),
        *_text("author", "reason"),
    )
    _table(
        "trials",
        _of("exams", "exam_id"),
        sa.Column("number", sa.Integer, nullable=False),
        *_text("kind", "ear"),
        sa.Column("frequency_hz", sa.Double, nullable=False),
        sa.Column("asked_db_hl", sa.Double),
        sa.Column("played_db_hl", sa.Double),
        sa.Column("heard", sa.Boolean, nullable=False),
        _at(),
        *_text("author"),
        sa.Column("reaction_ms", sa.Double),
        sa.UniqueConstraint("exam_id", "number", name="trials_number_in_exam"),
    )
    _table("voids", _of("trials", "trial_id", unique=True), _at(), *_text("author", "reason"))
    _table(
        "results",
        _of("exams", "exam_id"),
        _at(),
        *_text("author"),
        _json("shown"),
        _json("settings"),
        *_text("engine_version"),
        _json("trial_numbers"),
        *_text("trials_sha256"),
    )
    _table(
        "notes",
        _of("people", "person_id"),
        _of("visits", "visit_id", nullable=True),
        _of("exams", "exam_id", nullable=True),
        _at(),
        *_text("author", "text"),
    )
    _table("audit", _at(), *_text("author", "action", "subject", "reason"), _json("details"))


def _make_indexes() -> None:
    for name, table, columns in (
        ("identities_of_person", "identities", ["person_id", "id"]),
        ("identities_by_code", "identities", ["code"]),
        ("calibrations_of_device", "calibrations", ["device_id", "done_on"]),
        ("visits_of_person", "visits", ["person_id", "id"]),
        ("exams_of_visit", "exams", ["visit_id", "id"]),
        ("exams_by_reference", "exams", ["reference_exam_id"]),
        ("exam_states_of_exam", "exam_states", ["exam_id", "id"]),
        ("results_of_exam", "results", ["exam_id", "id"]),
        ("notes_of_person", "notes", ["person_id", "id"]),
        ("notes_of_visit", "notes", ["visit_id"]),
        ("notes_of_exam", "notes", ["exam_id"]),
        ("audit_of_subject", "audit", ["subject", "id"]),
    ):
        op.create_index(name, table, columns)


def _permit(table: str) -> str:
    """SQL that is true when the old row's person has been erased, with what the erasure covers."""
    if table in NEVER_DELETED:
        return "1 = 0"
    covered = "" if table in GOES_WITH_IDENTITY else " AND trials_deleted"
    owner = OWNER[table].format(row="OLD")
    return f"EXISTS (SELECT 1 FROM erasures WHERE person_id = {owner}{covered})"


def _guard_sqlite(table: str) -> None:
    refuse = f"SELECT RAISE(ABORT, '{table} is append-only')"
    same = f"id = NEW.id OR ({UNIQUE[table]})" if table in UNIQUE else "id = NEW.id"
    for when, condition in (
        ("update", "1 = 1"),
        ("delete", f"NOT {_permit(table)}"),
        ("insert", f"EXISTS (SELECT 1 FROM {table} WHERE {same})"),
    ):
        name = f"{table}_no_{'replace' if when == 'insert' else when}"
        op.execute(
            f"CREATE TRIGGER {name} BEFORE {when} ON {table} WHEN {condition} BEGIN {refuse}; END"
        )


def _own_schema() -> str:
    """Where the functions look for tables: temporary ones last, or one could pose as erasures."""
    schema = op.get_bind().exec_driver_sql("SELECT quote_ident(current_schema())").scalar_one()
    return f"{schema}, pg_temp"


def _guard_postgresql(table: str) -> None:
    op.execute(
        f"CREATE FUNCTION {table}_append_only() RETURNS trigger LANGUAGE plpgsql "
        f"SET search_path = {_own_schema()} AS $$ BEGIN "
        f"IF TG_OP = 'DELETE' THEN IF {_permit(table)} THEN RETURN OLD; END IF; END IF; "
        f"RAISE EXCEPTION '{table} is append-only'; END $$"
    )
    for when, each in (("update", "ROW"), ("delete", "ROW"), ("truncate", "STATEMENT")):
        name = f"{table}_no_{when}"
        op.execute(
            f"CREATE TRIGGER {name} BEFORE {when} ON {table} "
            f"FOR EACH {each} EXECUTE FUNCTION {table}_append_only()"
        )
        # Otherwise a replication role would pass by.
        op.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}")


def _audit_erasures() -> None:
    """The permit to delete writes its own audit row, so that none can be had unseen."""
    insert = (
        "INSERT INTO audit (at, author, action, subject, reason, details) VALUES "
        "(NEW.at, NEW.author, 'erase', 'people:' || NEW.person_id, NEW.reason, {details})"
    )
    if op.get_bind().dialect.name == "sqlite":
        details = (
            "CASE WHEN NEW.trials_deleted "
            "THEN '{\"trials_deleted\": true}' ELSE '{\"trials_deleted\": false}' END"
        )
        body = insert.replace("{details}", details)
        op.execute(f"CREATE TRIGGER erasures_audited AFTER INSERT ON erasures BEGIN {body}; END")
        return
    body = insert.replace("{details}", "json_build_object('trials_deleted', NEW.trials_deleted)")
    op.execute(
        "CREATE FUNCTION erasures_audited() RETURNS trigger LANGUAGE plpgsql "
        f"SET search_path = {_own_schema()} AS $$ BEGIN {body}; RETURN NEW; END $$"
    )
    op.execute(
        "CREATE TRIGGER erasures_audited AFTER INSERT ON erasures "
        "FOR EACH ROW EXECUTE FUNCTION erasures_audited()"
    )
    op.execute("ALTER TABLE erasures ENABLE ALWAYS TRIGGER erasures_audited")
