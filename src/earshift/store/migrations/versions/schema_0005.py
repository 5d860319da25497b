"""Accounts as people expect, a search by part of a name, and typed text that goes with a person.

What was typed lies in `texts` from here on. Links of the older chain were made with that text and
could be used to guess it after an erasure: they go, and what is there is chained as it is found.
Frozen: written out here and not taken from `tables`, which moves on with later schemas.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from alembic import op

from earshift.store import chain
from earshift.store.migrations.guards import EXAM, TRIAL, VISIT, append_only, own_schema
from earshift.store.migrations.versions.schema_0001 import ID, at, json, new_table, of, text
from earshift.store.migrations.versions.schema_0004 import ERASABLE, LASTING

revision = "0005"
down_revision = "0004"

# Whose a row is, as SQL on the row x, and which of its columns are typed.
TYPED = {
    "identities": ("x.person_id", "reason"),
    "visits": ("x.person_id", "checklist"),
    "exams": (f"({VISIT})", "source"),
    "exam_states": (f"({EXAM})", "reason"),
    "voids": (f"({TRIAL})", "reason"),
    "notes": ("x.person_id", "text"),
    "baselines": ("x.person_id", "reason"),
    "closings": (f"({EXAM})", "reason"),
    "merges": ("x.person_id", "reason"),
    "work_relations": (f"({EXAM})", "reason"),
    "follow_ups": ("x.person_id", "done_by", "details"),
}
OTHERS = {  # rows that the audit speaks of, whose text is in no column of theirs
    "people": "x.id",
    "trials": f"({EXAM})",
    "results": f"({EXAM})",
    "presses": f"({EXAM})",
    "signatures": "x.person_id",
    "signed": "x.person_id",
}
ERASURE_REASONS = ("asked by the person", "no longer needed", "stored by mistake", "other")


def upgrade() -> None:
    before = _chain_before()  # looked at before anything changes
    _accounts()
    _search()
    _programme()
    _texts()
    if before is not None:  # last: all rows are as they stay
        _chain_anew(before)


def _accounts() -> None:
    """Passwords to be changed, second factors, and attempts from where somebody is known."""
    op.add_column("user_states", sa.Column("temporary", sa.Boolean))
    op.add_column("login_attempts", sa.Column("trusted", sa.Text))
    op.create_index("login_attempts_by_trusted", "login_attempts", ["trusted", "at"])
    secret = sa.Column("secret", sa.Text)
    new_table(
        "second_factors",
        of("users", "user_id"),
        secret,
        json("recovery_sha256"),
        at(),
        *text("author", "reason"),
    )
    op.create_index("second_factors_of_user", "second_factors", ["user_id", "id"])
    append_only("second_factors")
    once = sa.UniqueConstraint("factor_id", "code", name="code_uses_once")
    new_table("code_uses", of("second_factors", "factor_id"), *text("code"), at(), once)
    append_only("code_uses", unique="factor_id = NEW.factor_id AND code = NEW.code")


def _search() -> None:
    """Codes and names as they are now, for a search by any part of them.

    Rebuilt from the identities, so it is no append-only table. Triggers keep it, whichever program
    writes: nobody is found by a name that was corrected, nor by one that was erased.
    """
    new_table("names", of("people", "person_id", unique=True), *text("found_by"))
    op.execute(
        "INSERT INTO names (person_id, found_by) SELECT person_id, found_by FROM identities i "
        "WHERE id = (SELECT max(id) FROM identities j WHERE j.person_id = i.person_id)"
    )
    for name, when, body in (
        (
            "identities_named",
            "INSERT",
            "DELETE FROM names WHERE person_id = NEW.person_id; "
            "INSERT INTO names (person_id, found_by) VALUES (NEW.person_id, NEW.found_by)",
        ),
        ("identities_unnamed", "DELETE", "DELETE FROM names WHERE person_id = OLD.person_id"),
    ):
        _on_identities(name, when, body)


def _programme() -> None:
    """Indexes by which the programme is counted with everybody stored."""
    for name in ("tested_of_person", "tested_by_day"):
        op.drop_index(name, "tested")
    op.create_index("tested_of_person", "tested", ["person_id", "complete", "day"])
    op.create_index("tested_by_shift", "tested", ["shift", "day", "person_id"])
    op.create_index("standings_by_job", "standings", ["job"])


def _on_identities(name: str, when: str, body: str) -> None:
    """A trigger that keeps `names` up to date."""
    if op.get_context().dialect.name == "sqlite":
        op.execute(f"CREATE TRIGGER {name} AFTER {when} ON identities BEGIN {body}; END")
        return
    op.execute(
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql "
        f"SET search_path = {own_schema()} AS $$ BEGIN {body}; RETURN NULL; END $$"
    )
    op.execute(
        f"CREATE TRIGGER {name} AFTER {when} ON identities FOR EACH ROW EXECUTE FUNCTION {name}()"
    )
    op.execute(f"ALTER TABLE identities ENABLE ALWAYS TRIGGER {name}")


def _texts() -> None:
    """All typed text about a person in one table that goes with the identity."""
    new_table(
        "texts",
        of("people", "person_id", nullable=True),
        of("people", "owner_id", nullable=True),
        *text("of_table"),
        sa.Column("row_id", ID, nullable=False),
        *text("field", "text", "salt"),
        sa.UniqueConstraint("of_table", "row_id", "field", name="texts_one_each"),
    )
    op.create_index("texts_of_person", "texts", ["person_id"])
    op.create_index("texts_of_owner", "texts", ["owner_id"])
    # Of two records of one person it goes with either; of somebody without a record, with whoever
    # is erased under that name, which the audit says of each text.
    named = "SELECT 1 FROM audit WHERE action = 'erase' AND subject = 'texts:' || {row}.id"
    append_only(
        "texts",
        owner="{row}.person_id OR person_id = {row}.owner_id "
        f"OR ({{row}}.person_id IS NULL AND EXISTS ({named}))",
        goes_with_identity=True,
        unique="of_table = NEW.of_table AND row_id = NEW.row_id AND field = NEW.field",
    )
    if not op.get_context().as_sql:
        _move()
    for table, (_, *fields) in TYPED.items():
        for field in fields:
            op.drop_column(table, field)


def _move() -> None:
    """Text of those who were erased goes; the others' moves."""
    for table, (owner, *fields) in TYPED.items():
        for field in fields:
            plain = f"CAST(x.{field} AS TEXT)" if field == "checklist" else f"x.{field}"
            _take(table, field, f"{table} x", owner.format(row="x"), plain)
    of_check = "calibrations x WHERE x.kind = 'biological'"
    _take("calibrations", "laboratory", of_check, "NULL", "x.laboratory")
    whose = {table: owner for table, (owner, *_) in TYPED.items()} | OTHERS
    for table, owner in whose.items():
        said = f"audit a JOIN {table} x ON a.subject = '{table}:' || x.id WHERE a.action <> 'erase'"
        _take("audit", "reason", said, owner.format(row="x"), "a.reason", "a.id")
    with _unguarded("calibrations", "update"):
        op.execute("UPDATE calibrations SET laboratory = '' WHERE kind = 'biological'")
    with _unguarded("audit", "update"):
        for table in whose:
            op.execute(
                f"UPDATE audit SET reason = '' WHERE reason <> '' AND subject LIKE '{table}:%' "
                "AND action <> 'erase'"
            )
        op.execute(f"UPDATE audit SET reason = 'other' WHERE action = 'erase' AND {_free('audit')}")
    with _unguarded("erasures", "update"):
        op.execute(f"UPDATE erasures SET reason = 'other' WHERE {_free('erasures')}")


def _free(table: str) -> str:
    return f"{table}.reason NOT IN ({', '.join(repr(one) for one in ERASURE_REASONS)})"


def _take(table: str, field: str, rows: str, owner: str, plain: str, row_id: str = "x.id") -> None:
    """Copy a text of all rows whose people are not erased."""
    postgresql = op.get_context().dialect.name == "postgresql"
    salt = (
        "replace(gen_random_uuid()::text, '-', '')" if postgresql else "lower(hex(randomblob(16)))"
    )
    into = (
        "SELECT m.into_id FROM merges m WHERE m.person_id = found.person_id {more}"
        "ORDER BY m.id DESC LIMIT 1"
    )
    # Of a merge: who was merged into, or was until then.
    of_merge = "AND m.into_id IS NOT NULL AND m.id <= found.row_id "
    more = of_merge if table == "merges" else ""
    owner_id = f"({into.format(more=more)})"
    number = f"CAST({owner} AS BIGINT)" if postgresql else owner
    op.execute(
        "INSERT INTO texts (person_id, owner_id, of_table, row_id, field, text, salt) "
        f"SELECT person_id, owner_id, '{table}', row_id, '{field}', plain, {salt} FROM ("
        f"SELECT found.*, {owner_id} AS owner_id FROM ("
        f"SELECT {number} AS person_id, {row_id} AS row_id, {plain} AS plain FROM {rows}"
        ") found) whose WHERE plain NOT IN ('', '{}') AND NOT EXISTS (SELECT 1 FROM erasures e "
        "WHERE e.person_id = whose.person_id OR e.person_id = whose.owner_id) ORDER BY row_id"
    )


@contextmanager
def _unguarded(table: str, when: str) -> Iterator[None]:
    """Rows of an append-only table may be changed meanwhile. A guard that was gone stays gone: the
    check says so."""
    guard, connection = f"{table}_no_{when}", op.get_bind()
    if connection.dialect.name == "postgresql":
        query = sa.text("SELECT tgenabled FROM pg_trigger WHERE tgname = :name")
        was = connection.execute(query, {"name": guard}).scalar_one_or_none()
        if was is not None:
            op.execute(f"ALTER TABLE {table} DISABLE TRIGGER {guard}")
        yield
        if was == "A":
            op.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {guard}")
        return
    query = sa.text("SELECT sql FROM sqlite_master WHERE type = 'trigger' AND name = :name")
    made = connection.execute(query, {"name": guard}).scalar_one_or_none()
    op.execute(f"DROP TRIGGER IF EXISTS {guard}")
    yield
    if made is not None:
        connection.exec_driver_sql(made)


# The chain


def _chain_before() -> chain.ChainReport | None:
    """What the chain says of the database as it was; None of one that is only written down."""
    if op.get_context().as_sql:
        return None
    return chain.inspect_chain(op.get_bind(), tables=_reflected(*ERASABLE, *LASTING))


def _reflected(*names: str) -> dict[str, sa.Table]:
    metadata = sa.MetaData()
    metadata.reflect(op.get_bind(), only=names)
    return {name: metadata.tables[name] for name in names}


def _chain_anew(before: chain.ChainReport) -> None:
    with _unguarded("chain", "delete"):
        op.execute("DELETE FROM chain")
    chain.chain_as_found(
        op.get_bind(), [*_reflected(*ERASABLE, "texts", *LASTING, "handles").values()], before
    )
