"""The triggers that a database must have, word for word: one that was emptied guards nothing.

They are what the migrations would write into a new database, and are compared with what stands in
this one. So are tables, columns, constraints and indexes; what else could bend a row on its way in
or hide it on its way out is not ours.
"""

import io
import re
from functools import cache
from typing import Any

from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import JSON, Column, Connection

from earshift.store import tables as t
from earshift.store.database import MIGRATIONS

# What stands in a migration's script, as SQLite keeps it and as PostgreSQL shows it.
SQLITE = re.compile(r"^CREATE TRIGGER (\w+) .*?END$", re.M | re.S)
FUNCTION = re.compile(r"^CREATE FUNCTION (\w+)\(\) .*?\$\$(.*?)\$\$$", re.M | re.S)
MOST_BLOBS = 10  # of a table that are named
TRIGGER = re.compile(
    r"^CREATE TRIGGER (\w+) (\w+ \w+) ON (?:\S+\.)?(\w+) FOR EACH (\w+) "
    r"EXECUTE FUNCTION (?:\S+\.)?(\w+)\(\)$",
    re.M,
)


def wrong_triggers(connection: Connection) -> list[str]:
    """Triggers that are missing, switched off, other than they should be, or not ours."""
    needed = _script_triggers(connection.dialect.name)
    sqlite = connection.dialect.name == "sqlite"
    found = _sqlite(connection) if sqlite else _postgresql(connection, needed)
    problems = []
    for name in sorted(needed.keys() | found.keys()):
        if name not in found:
            problems.append(f"the trigger {name} is missing or switched off")
        elif name not in needed:
            problems.append(f"the trigger {name} is not ours")
        elif found[name] != needed[name]:
            problems.append(f"the trigger {name} does not do what it should")
    return problems


def _sqlite(connection: Connection) -> dict[str, str]:
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
    return {row.name: row.sql for row in connection.exec_driver_sql(query)}


def _postgresql(connection: Connection, needed: dict[str, str]) -> dict[str, str]:
    """Triggers with their function's body: ours if they always fire, and all of others."""
    query = (
        "SELECT t.tgname AS name, c.relname AS of_table, t.tgenabled = 'A' AS always, "
        "pg_get_triggerdef(t.oid) AS told, p.prosrc AS body, NOT p.prosecdef AND "
        "p.proconfig = ARRAY['search_path=' || quote_ident(n.nspname) || ', pg_temp'] AS confined "
        "FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid "
        "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE NOT t.tgisinternal "
        "AND c.relnamespace = current_schema()::regnamespace"
    )
    found = {}
    for row in connection.exec_driver_sql(query):
        here = f" ON {row.of_table} FOR "
        if here not in needed.get(row.name, here):  # a name of ours, on another table
            found[f"{row.name} of {row.of_table}"] = row.told
        elif row.always or row.name not in needed:
            usual = TRIGGER.search(row.told) if row.confined else None
            found[row.name] = row.told if usual is None else _told(usual, row.body)
    return found


# Whatever else PostgreSQL could do to rows on their way in or out, each as a sentence.
BENDING = (
    "SELECT 'the rule ' || rulename || ' of ' || tablename || ' is not ours' FROM pg_rules "
    "WHERE schemaname = current_schema()",
    "SELECT 'some rows of ' || relname || ' may be hidden by row-level security' FROM pg_class "
    "WHERE (relrowsecurity OR relforcerowsecurity) "
    "AND relnamespace = current_schema()::regnamespace",
    "SELECT DISTINCT 'foreign keys of ' || c.relname || ' are switched off' FROM pg_trigger g "
    "JOIN pg_class c ON c.oid = g.tgrelid WHERE g.tgisinternal AND g.tgenabled <> 'O' "
    "AND c.relnamespace = current_schema()::regnamespace",
    "SELECT 'rows of ' || i.inhrelid::regclass || ' pass for rows of ' || c.relname "
    "FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhparent "
    "WHERE c.relnamespace = current_schema()::regnamespace",
    "SELECT relname || ' does not outlive a crash of the server: it is not logged' FROM pg_class "
    "WHERE relkind IN ('r', 'S') AND relpersistence <> 'p' "
    "AND relnamespace = current_schema()::regnamespace",
    # None of ours has any.
    "SELECT 'the constraint ' || n.conname || ' of ' || c.relname || ' is not ours' "
    "FROM pg_constraint n JOIN pg_class c ON c.oid = n.conrelid WHERE n.contype IN ('c', 'x') "
    "AND c.relnamespace = current_schema()::regnamespace",
    "SELECT DISTINCT 'everybody may change ' || c.relname FROM pg_class c, "
    "aclexplode(c.relacl) a WHERE a.grantee = 0 AND a.privilege_type <> 'SELECT' "
    "AND c.relkind IN ('r', 'S') AND c.relnamespace = current_schema()::regnamespace",
)
# The same for SQLite. Tables are not compared word for word, as upgrades write them otherwise than
# new databases do; what none of ours ever says is looked for instead.
BENDING_SQLITE = (
    "SELECT 'the view ' || name || ' is not ours' FROM sqlite_master WHERE type = 'view'",
    "SELECT 'the ' || type || ' ' || name || ' takes rows otherwise than ours does' "
    "FROM sqlite_master WHERE type IN ('table', 'index') AND (sql LIKE '%ON CONFLICT%' "
    "OR sql LIKE '%COLLATE%' OR sql LIKE '%GENERATED ALWAYS%')",
    # Numbers are given in order: none comes near this by writing.
    "SELECT 'the numbers of ' || name || ' have run out' FROM sqlite_sequence "
    "WHERE seq > 4611686018427387904",
)


def _blobs(connection: Connection) -> list[str]:
    """Rows of SQLite in which bytes stand for text: nobody finds them, and a digest of bytes is
    that of their hexadecimal digits."""
    there = "SELECT name FROM sqlite_master WHERE type = 'table'"
    names = set(connection.exec_driver_sql(there).scalars())
    problems = []
    for table in [table for table in t.metadata.sorted_tables if table.name in names]:
        bytes_in = " OR ".join(f"typeof(\"{column.name}\") = 'blob'" for column in table.c)
        rows = connection.exec_driver_sql(
            f"SELECT rowid FROM {table.name} WHERE {bytes_in} LIMIT {MOST_BLOBS}"
        )
        problems += [f"{table.name}:{row} holds bytes instead of text" for row in rows.scalars()]
    return problems


def wrong_structure(connection: Connection) -> list[str]:
    """Tables, columns, constraints and indexes that are missing, changed or not ours."""
    from alembic.autogenerate import compare_metadata

    options = {"version_table": t.VERSION_TABLE, "compare_server_default": _odd_default}
    context = MigrationContext.configure(connection, opts=options)
    problems = []
    for one in compare_metadata(context, t.metadata):
        change, *rest = one[0] if isinstance(one, list) else one
        problems.append(_changed(change, rest))
    sqlite = connection.dialect.name == "sqlite"
    for query in BENDING_SQLITE if sqlite else BENDING:
        problems += connection.exec_driver_sql(query).scalars()
    if sqlite:
        problems += _blobs(connection)
    return sorted(filter(None, problems))


def _changed(change: str, rest: list[Any]) -> str:
    """A difference between the tables of the code and those that are there, as a sentence."""
    done, _, kind = change.partition("_")
    if done == "modify":
        return f"the column {rest[1]}.{rest[2]} is not as it should be"
    end = "is missing" if done == "add" else "is not ours"
    if kind == "column":
        return f"the column {rest[1]}.{rest[2].name} {end}"
    if kind == "fk":
        return f"a foreign key of {rest[0].table.name} {end}"
    if kind == "table" and done == "remove":
        return ""  # a table more changes nothing about ours
    return f"the {kind} {rest[0].name} {end}"


def _odd_default(
    _context: Any, _found: Any, wanted: Column[Any], default: str | None, *_: Any
) -> bool:
    """Whether the database would fill in more than a migration left it to fill in."""
    known = "'{}'" if isinstance(wanted.type, JSON) else "''" if wanted.name == "salt" else None
    return default is not None and default.partition("::")[0].strip("()") != known


def _told(trigger: re.Match[str], body: str) -> str:
    _, when, table, each, function = trigger.groups()
    return f"{when.upper()} ON {table} FOR EACH {each}: {function}: {body}"


@cache
def _script_triggers(dialect: str) -> dict[str, str]:
    """The triggers of a new database, as the migrations write them."""
    written = io.StringIO()
    context = MigrationContext.configure(
        dialect_name=dialect, opts={"as_sql": True, "output_buffer": written}
    )
    revisions = list(ScriptDirectory(str(MIGRATIONS)).walk_revisions())
    with Operations.context(context):
        for revision in reversed(revisions):
            revision.module.upgrade()
    statements = "\n".join(one.strip() for one in written.getvalue().split(";\n"))
    if dialect == "sqlite":
        return {found[1]: found[0] for found in SQLITE.finditer(statements)}
    bodies = {found[1]: found[2] for found in FUNCTION.finditer(statements)}
    return {one[1]: _told(one, bodies[one[5]]) for one in TRIGGER.finditer(statements)}
