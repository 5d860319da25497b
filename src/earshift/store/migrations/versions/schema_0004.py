"""The chain over all that is stored, and salts in the rows that can be erased.

What an older database holds is chained as it is found. Frozen: written out here and not taken from
`tables`, which moves on with later schemas.
"""

import sqlalchemy as sa
from alembic import op

from earshift.store import chain
from earshift.store.migrations.guards import append_only
from earshift.store.migrations.versions.schema_0001 import new_table, text

revision = "0004"
down_revision = "0003"

ERASABLE = (
    *("identities", "notes", "visits", "exams", "exam_states", "trials", "voids", "results"),
    *("presses", "baselines", "closings", "merges", "work_relations", "signed", "follow_ups"),
)
LASTING = (
    *("people", "erasures", "devices", "calibrations", "site_settings", "signatures", "room_noise"),
    *("users", "user_states", "keys", "key_ends", "audit"),
)


def upgrade() -> None:
    for table in ERASABLE:
        _add_salts(table)
    # How many trials an exam had when its state changed, whatever the clock said then.
    op.add_column("exam_states", sa.Column("after_trial", sa.Integer))
    new_table("chain", *text("entries", "sha256"))
    append_only("chain")
    if not op.get_context().as_sql:
        metadata, connection = sa.MetaData(), op.get_bind()
        metadata.reflect(connection, only=[*ERASABLE, *LASTING])
        chain.chain_as_found(connection, [metadata.tables[name] for name in (*ERASABLE, *LASTING)])


def _add_salts(table: str) -> None:
    """A random salt in every row, also in those that are there."""
    if op.get_context().dialect.name == "postgresql":
        salt = sa.text("replace(gen_random_uuid()::text, '-', '')")
        op.add_column(table, sa.Column("salt", sa.Text, nullable=False, server_default=salt))
        op.alter_column(table, "salt", server_default="")
        return
    op.add_column(table, sa.Column("salt", sa.Text, nullable=False, server_default=""))
    if op.get_context().as_sql:
        return
    guard = f"{table}_no_update"
    query = "SELECT sql FROM sqlite_master WHERE type = 'trigger' AND name = ?"
    made = op.get_bind().exec_driver_sql(query, (guard,)).scalar_one_or_none()
    op.execute(f"DROP TRIGGER IF EXISTS {guard}")
    op.execute(f"UPDATE {table} SET salt = lower(hex(randomblob(16)))")
    if made is not None:  # one that was gone stays gone: the check says so
        op.get_bind().exec_driver_sql(made)
