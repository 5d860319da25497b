"""The triggers that a database must have, word for word: one that was emptied guards nothing.

They are what the migrations would write into a new database, and are compared with what stands in
this one.
"""

import io
import re
from functools import cache

from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from earshift.store.database import MIGRATIONS

# What stands in a migration's script, as SQLite keeps it and as PostgreSQL shows it.
SQLITE = re.compile(r"^CREATE TRIGGER (\w+) .*?END$", re.M | re.S)
FUNCTION = re.compile(r"^CREATE FUNCTION (\w+)\(\) .*?\$\$(.*?)\$\$$", re.M | re.S)
TRIGGER = re.compile(
    r"^CREATE TRIGGER (\w+) (\w+ \w+) ON (?:\S+\.)?(\w+) FOR EACH (\w+) "
    r"EXECUTE FUNCTION (?:\S+\.)?(\w+)\(\)$",
    re.M,
)


def wrong_triggers(connection: Connection) -> list[str]:
    """Triggers that are missing, switched off, other than they should be, or not ours."""
    needed = _script_triggers(connection.dialect.name)
    found = _sqlite(connection) if connection.dialect.name == "sqlite" else _postgresql(connection)
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


def _postgresql(connection: Connection) -> dict[str, str]:
    """Triggers that always fire, with their function's body."""
    query = (
        "SELECT t.tgname AS name, pg_get_triggerdef(t.oid) AS told, p.prosrc AS body, "
        "p.proconfig = ARRAY['search_path=' || quote_ident(n.nspname) || ', pg_temp'] AS confined "
        "FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid "
        "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE NOT t.tgisinternal "
        "AND t.tgenabled = 'A' AND c.relnamespace = current_schema()::regnamespace"
    )
    found = {}
    for row in connection.exec_driver_sql(query):
        usual = TRIGGER.search(row.told) if row.confined else None
        found[row.name] = row.told if usual is None else _told(usual, row.body)
    return found


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
