"""The clinic's working day: employment, site settings, merged records, worklist, and the reviewer's
acts: closed verdicts, signatures, follow-ups, words on work-relatedness; room noise.

Frozen: written out here and not taken from `tables`, which moves on with later schemas.
"""

import sqlalchemy as sa
from alembic import op

from earshift.store.migrations.guards import EXAM, append_only, own_schema
from earshift.store.migrations.versions.schema_0001 import ID, at, json, new_table, of, text

revision = "0003"
down_revision = "0002"

# Whom a new row of a table says something about.
PERSON = "SELECT NEW.person_id"
OF_EXAM = EXAM.format(row="NEW")
# Everybody that a record was ever merged into: the newest row may say that it is so no more.
OF_MERGE = (
    "SELECT NEW.person_id UNION SELECT into_id FROM merges "
    "WHERE person_id = NEW.person_id AND into_id IS NOT NULL"
)
SAID_OF = {
    "people": "SELECT NEW.id",
    "identities": PERSON,
    "erasures": PERSON,
    "baselines": PERSON,
    "merges": OF_MERGE,
    "exam_states": OF_EXAM,
    "results": OF_EXAM,
    "closings": OF_EXAM,
    "work_relations": OF_EXAM,
    "signatures": PERSON,
    "follow_ups": PERSON,
}


def upgrade() -> None:
    for name, kind in (
        ("department", sa.Text),
        ("job", sa.Text),
        ("hired_on", sa.Date),
        ("left_on", sa.Date),
    ):
        op.add_column("identities", sa.Column(name, kind))
    new_table(
        "closings",
        of("exams", "exam_id"),
        sa.Column("closed", sa.Boolean, nullable=False),
        at(),
        *text("author", "reason"),
    )
    new_table(
        "merges",
        of("people", "person_id"),
        of("people", "into_id", nullable=True),
        at(),
        *text("author", "reason"),
    )
    new_table("site_settings", *text("name"), json("value"), at(), *text("author", "reason"))
    _make_review()
    _make_rebuilt()
    for name, table, columns in (
        ("closings_of_exam", "closings", ["exam_id", "id"]),
        ("merges_of_person", "merges", ["person_id", "id"]),
        ("merges_into", "merges", ["into_id"]),
        ("site_settings_by_name", "site_settings", ["name", "id"]),
        ("work_relations_of_exam", "work_relations", ["exam_id", "id"]),
        ("signatures_of_visit", "signatures", ["visit_id", "id"]),
        ("signatures_of_person", "signatures", ["person_id", "id"]),
        ("signed_of_person", "signed", ["person_id"]),
        ("signed_of_owner", "signed", ["owner_id"]),
        ("follow_ups_of_visit", "follow_ups", ["visit_id", "id"]),
        ("follow_ups_of_person", "follow_ups", ["person_id", "id"]),
        ("room_noise_by_day", "room_noise", ["device_id", "measured_on", "id"]),
        ("standings_by_full_day", "standings", ["full_day", "from_day", "person_id", "left_day"]),
        ("standings_by_any_day", "standings", ["any_day", "from_day", "person_id", "left_day"]),
        ("stale_by_person", "stale", ["person_id"]),
        ("standings_by_department", "standings", ["department"]),
        ("tasks_of_person", "tasks", ["person_id"]),
        ("tasks_by_day", "tasks", ["why", "day"]),
        ("tasks_by_exam", "tasks", ["exam_id"]),
        ("tested_of_person", "tested", ["person_id"]),
        ("tested_by_day", "tested", ["day", "person_id", "complete", "shift"]),
        ("tested_by_exam", "tested", ["exam_id"]),
    ):
        op.create_index(name, table, columns)
    append_only("closings", owner=f"({EXAM})")
    append_only("merges", owner="{row}.person_id")
    append_only("site_settings")
    append_only("work_relations", owner=f"({EXAM})")
    append_only("signatures")  # who, when, what it means, and the hash: they outlive the person
    append_only(
        "signed",
        owner="{row}.person_id OR person_id = {row}.owner_id",
        goes_with_identity=True,
        unique="signature_id = NEW.signature_id",
    )
    append_only("follow_ups", owner="{row}.person_id", goes_with_identity=True)
    append_only("room_noise")
    op.execute("INSERT INTO stale (person_id) SELECT id FROM people")
    for table, people in SAID_OF.items():
        _mark_stale(table, people)


def _make_review() -> None:
    new_table(
        "work_relations",
        of("exams", "exam_id"),
        sa.Column("related", sa.Boolean),
        at(),
        *text("author", "name", "reason"),
    )
    # A visit's id and no reference to it: the visit can be erased, its signatures stay.
    new_table(
        "signatures",
        of("people", "person_id"),
        of("people", "owner_id"),
        sa.Column("visit_id", ID, nullable=False),
        of("signatures", "amends_id", nullable=True),
        at(),
        *text("author", "name", "meaning", "sha256"),
    )
    # The text that the hash is of. It names the visit's owner, of whom the visit may be another
    # record: it goes with either.
    new_table(
        "signed",
        of("signatures", "signature_id", unique=True),
        of("people", "person_id"),
        of("people", "owner_id"),
        *text("content"),
        json("about"),
    )
    new_table(
        "follow_ups",
        of("people", "person_id"),
        of("visits", "visit_id"),
        *text("kind"),
        sa.Column("done", sa.Boolean, nullable=False),
        sa.Column("done_on", sa.Date, nullable=False),
        at(),
        *text("author", "done_by", "details"),
    )
    new_table(
        "room_noise",
        sa.Column("measured_on", sa.Date, nullable=False),
        of("devices", "device_id", nullable=True),
        *text("room", "instrument"),
        json("levels"),
        at(),
        *text("author"),
    )


def _make_rebuilt() -> None:
    """Tables that hold nothing of their own, and so are no append-only ones."""
    new_table("stale", sa.Column("person_id", ID, nullable=False))
    new_table(
        "standings",
        of("people", "person_id", unique=True),
        sa.Column("code", sa.Text),
        sa.Column("name", sa.Text),
        *text("found_by"),
        sa.Column("department", sa.Text),
        sa.Column("job", sa.Text),
        sa.Column("from_day", sa.Integer, nullable=False),
        sa.Column("left_day", sa.Integer),
        sa.Column("full_day", sa.Integer),
        *text("full_ears"),
        sa.Column("any_day", sa.Integer),
        *text("any_ears"),
    )
    new_table(
        "tasks",
        of("people", "person_id"),
        *text("why", "ears"),
        sa.Column("day", sa.Integer, nullable=False),
        of("exams", "exam_id"),
    )
    new_table(
        "tested",
        of("people", "person_id"),
        of("exams", "exam_id"),
        *text("ear"),
        sa.Column("day", sa.Integer, nullable=False),
        sa.Column("complete", sa.Boolean, nullable=False),
        *text("shift"),
    )


def _mark_stale(table: str, people: str) -> None:
    """Whoever writes, and by whatever program: what is worked out of a person is so again."""
    body = f"INSERT INTO stale (person_id) {people}"
    if op.get_context().dialect.name == "sqlite":
        op.execute(f"CREATE TRIGGER {table}_stale AFTER INSERT ON {table} BEGIN {body}; END")
        return
    op.execute(
        f"CREATE FUNCTION {table}_stale() RETURNS trigger LANGUAGE plpgsql "
        f"SET search_path = {own_schema()} AS $$ BEGIN {body}; RETURN NEW; END $$"
    )
    op.execute(
        f"CREATE TRIGGER {table}_stale AFTER INSERT ON {table} "
        f"FOR EACH ROW EXECUTE FUNCTION {table}_stale()"
    )
    op.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {table}_stale")
