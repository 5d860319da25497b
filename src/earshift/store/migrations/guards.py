"""Triggers that make a table append-only, on both databases; every migration uses these.

Frozen like the migrations themselves: a change here would change what an old schema was.
"""

from alembic import op

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


def append_only(
    table: str,
    *,
    owner: str | None = None,
    goes_with_identity: bool = False,
    unique: str | None = None,
) -> None:
    """Refuse updates, and deletes unless the erasure of the row's `owner` covers them.

    `unique` is SQL for what a new row must not share with an older one: SQLite's REPLACE would
    delete that one unseen.
    """
    permit = _permit(owner, goes_with_identity)
    if op.get_context().dialect.name == "sqlite":
        _guard_sqlite(table, permit, unique)
    else:
        _guard_postgresql(table, permit)


def _permit(owner: str | None, goes_with_identity: bool) -> str:
    """SQL that is true when the old row's person has been erased, with what the erasure covers."""
    if owner is None:
        return "1 = 0"
    covered = "" if goes_with_identity else " AND trials_deleted"
    return f"EXISTS (SELECT 1 FROM erasures WHERE person_id = {owner.format(row='OLD')}{covered})"


def _guard_sqlite(table: str, permit: str, unique: str | None) -> None:
    refuse = f"SELECT RAISE(ABORT, '{table} is append-only')"
    same = f"id = NEW.id OR ({unique})" if unique else "id = NEW.id"
    for when, condition in (
        ("update", "1 = 1"),
        ("delete", f"NOT {permit}"),
        ("insert", f"EXISTS (SELECT 1 FROM {table} WHERE {same})"),
    ):
        name = f"{table}_no_{'replace' if when == 'insert' else when}"
        op.execute(
            f"CREATE TRIGGER {name} BEFORE {when} ON {table} WHEN {condition} BEGIN {refuse}; END"
        )


def own_schema() -> str:
    """Where the functions look for tables: temporary ones last, or one could pose as erasures."""
    if op.get_context().as_sql:  # written down for a comparison, in no database
        return "public, pg_temp"
    schema = op.get_bind().exec_driver_sql("SELECT quote_ident(current_schema())").scalar_one()
    return f"{schema}, pg_temp"


def _guard_postgresql(table: str, permit: str) -> None:
    op.execute(
        f"CREATE FUNCTION {table}_append_only() RETURNS trigger LANGUAGE plpgsql "
        f"SET search_path = {own_schema()} AS $$ BEGIN "
        f"IF TG_OP = 'DELETE' THEN IF {permit} THEN RETURN OLD; END IF; END IF; "
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
