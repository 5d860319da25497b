"""The first schema, and the triggers that make it append-only.

Frozen: written out here and not taken from `tables`, which moves on with later schemas.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

from earshift.store.migrations.guards import EXAM, TRIAL, VISIT, append_only, own_schema
from earshift.store.tables import UtcDateTime

revision = "0001"
down_revision = None

ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")

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


def new_table(name: str, *columns: Any) -> None:
    op.create_table(
        name, sa.Column("id", ID, primary_key=True), *columns, sqlite_autoincrement=True
    )


def text(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=False) for name in names]


def at(name: str = "at", nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, UtcDateTime, nullable=nullable)


def of(table: str, name: str, nullable: bool = False, unique: bool = False) -> sa.Column[int]:
    return sa.Column(name, ID, sa.ForeignKey(f"{table}.id"), nullable=nullable, unique=unique)


def json(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.JSON, nullable=False)


def upgrade() -> None:
    _make_tables()
    _make_indexes()
    for table in (*OWNER, *NEVER_DELETED):
        append_only(
            table,
            owner=OWNER.get(table),
            goes_with_identity=table in GOES_WITH_IDENTITY,
            unique=UNIQUE.get(table),
        )
    _audit_erasures()


def _make_tables() -> None:
    new_table("people", at("created_at"))
    new_table(
        "identities",
        of("people", "person_id"),
        sa.Column("code", sa.Text),
        sa.Column("name", sa.Text),
        sa.Column("birth_date", sa.Date),
        sa.Column("sex", sa.Text),
        *text("found_by"),
        at(),
        *text("author", "reason"),
    )
    new_table(
        "erasures",
        of("people", "person_id", unique=True),
        at(),
        *text("author", "reason"),
        sa.Column("trials_deleted", sa.Boolean, nullable=False),
    )
    new_table("devices", *text("name", "transducer", "model", "serial"))
    new_table(
        "calibrations",
        of("devices", "device_id"),
        sa.Column("done_on", sa.Date, nullable=False),
        sa.Column("due_on", sa.Date, nullable=False),
        *text("laboratory", "coupler", "kind"),
        json("table"),
    )
    new_table(
        "visits",
        of("people", "person_id"),
        at("started_at"),
        *text("zone", "mode", "author"),
        of("devices", "device_id", nullable=True),
        json("checklist"),
    )
    new_table(
        "exams",
        of("visits", "visit_id"),
        *text("ear", "kind"),
        json("design"),
        *text("engine_version"),
        of("exams", "reference_exam_id", nullable=True),
        at("measured_at", nullable=True),
        *text("source"),
    )
    new_table(
        "exam_states",
        of("exams", "exam_id"),
        *text("state", "engine_version"),
        at(),
        *text("author", "reason"),
    )
    new_table(
        "trials",
        of("exams", "exam_id"),
        sa.Column("number", sa.Integer, nullable=False),
        *text("kind", "ear"),
        sa.Column("frequency_hz", sa.Double, nullable=False),
        sa.Column("asked_db_hl", sa.Double),
        sa.Column("played_db_hl", sa.Double),
        sa.Column("heard", sa.Boolean, nullable=False),
        at(),
        *text("author"),
        sa.Column("reaction_ms", sa.Double),
        sa.UniqueConstraint("exam_id", "number", name="trials_number_in_exam"),
    )
    new_table("voids", of("trials", "trial_id", unique=True), at(), *text("author", "reason"))
    new_table(
        "results",
        of("exams", "exam_id"),
        at(),
        *text("author"),
        json("shown"),
        json("settings"),
        *text("engine_version"),
        json("trial_numbers"),
        *text("trials_sha256"),
    )
    new_table(
        "notes",
        of("people", "person_id"),
        of("visits", "visit_id", nullable=True),
        of("exams", "exam_id", nullable=True),
        at(),
        *text("author", "text"),
    )
    new_table("audit", at(), *text("author", "action", "subject", "reason"), json("details"))


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


def _audit_erasures() -> None:
    """The permit to delete writes its own audit row, so that none can be had unseen."""
    insert = (
        "INSERT INTO audit (at, author, action, subject, reason, details) VALUES "
        "(NEW.at, NEW.author, 'erase', 'people:' || NEW.person_id, NEW.reason, {details})"
    )
    if op.get_context().dialect.name == "sqlite":
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
        f"SET search_path = {own_schema()} AS $$ BEGIN {body}; RETURN NEW; END $$"
    )
    op.execute(
        "CREATE TRIGGER erasures_audited AFTER INSERT ON erasures "
        "FOR EACH ROW EXECUTE FUNCTION erasures_audited()"
    )
    op.execute("ALTER TABLE erasures ENABLE ALWAYS TRIGGER erasures_audited")
