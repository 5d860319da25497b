"""The clinic in the browser: users, keys, random ids, how an exam was played, presses, baselines.

Frozen: written out here and not taken from `tables`, which moves on with later schemas.
"""

import sqlalchemy as sa
from alembic import op

from earshift.store.migrations.guards import EXAM, append_only
from earshift.store.migrations.versions.schema_0001 import at, json, new_table, of, text

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # How an exam was given: sound, timing, who answered. Older exams say nothing.
    op.add_column("exams", sa.Column("delivery", sa.JSON, nullable=False, server_default="{}"))
    # What makes a browser's sound this device's and no other's; an audiometer has none.
    op.add_column("devices", sa.Column("fingerprint", sa.JSON, nullable=False, server_default="{}"))
    new_table(
        "handles",
        *text("kind"),
        sa.Column("row_id", sa.BigInteger, nullable=False),
        sa.Column("handle", sa.Text, nullable=False, unique=True),
        sa.UniqueConstraint("kind", "row_id", name="handles_one_each"),
    )
    new_table(
        "presses",
        of("exams", "exam_id"),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("after_onset_ms", sa.Double),
        at(),
        *text("author"),
    )
    new_table(
        "baselines",
        of("people", "person_id"),
        *text("ear"),
        of("exams", "exam_id"),
        at(),
        *text("author", "reason"),
    )
    new_table("users", sa.Column("name", sa.Text, nullable=False, unique=True), at("created_at"))
    new_table(
        "user_states",
        of("users", "user_id"),
        *text("role", "password_hash", "state"),
        at(),
        *text("author", "reason"),
    )
    new_table(
        "keys",
        *text("kind"),
        sa.Column("secret_sha256", sa.Text, nullable=False, unique=True),
        of("users", "user_id", nullable=True),
        *text("name"),
        json("scope"),
        at("created_at"),
        at("expires_at", nullable=True),
        *text("author"),
    )
    new_table("key_ends", of("keys", "key_id", unique=True), at(), *text("author", "reason"))
    new_table(
        "login_attempts",
        *text("name_sha256", "address"),
        sa.Column("succeeded", sa.Boolean, nullable=False),
        at(),
    )
    for name, table, columns in (
        ("presses_of_exam", "presses", ["exam_id", "id"]),
        ("baselines_of_person", "baselines", ["person_id", "id"]),
        ("baselines_by_exam", "baselines", ["exam_id"]),
        ("user_states_of_user", "user_states", ["user_id", "id"]),
        ("keys_of_user", "keys", ["user_id", "id"]),
        ("keys_by_name", "keys", ["name"]),
        ("login_attempts_by_name", "login_attempts", ["name_sha256", "at"]),
        ("login_attempts_by_address", "login_attempts", ["address", "at"]),
    ):
        op.create_index(name, table, columns)
    append_only("presses", owner=f"({EXAM})")
    append_only("baselines", owner="{row}.person_id")
    append_only(
        "handles", unique="handle = NEW.handle OR (kind = NEW.kind AND row_id = NEW.row_id)"
    )
    append_only("users", unique="name = NEW.name")
    append_only("user_states")
    append_only("keys", unique="secret_sha256 = NEW.secret_sha256")
    append_only("key_ends", unique="key_id = NEW.key_id")
    append_only("login_attempts")
