"""What guards the tables is compared with what it should be: on both databases, nothing that was
added, taken away or switched off past the store goes unseen."""

from pathlib import Path

import pytest

from earshift.store import Store
from support.databases import PostgresqlServer, prepare, raw

FORGE = "LANGUAGE plpgsql AS $$ BEGIN NEW.heard := true; RETURN NEW; END $$"
POSTGRESQL = {
    "a trigger of somebody else": (
        f"CREATE FUNCTION nobody() RETURNS trigger {FORGE}; CREATE TRIGGER deaf "
        "BEFORE INSERT ON trials FOR EACH ROW EXECUTE FUNCTION nobody()",
        "the trigger deaf is not ours",
    ),
    "one that fires always": (
        f"CREATE FUNCTION nobody() RETURNS trigger {FORGE}; CREATE TRIGGER deaf "
        "BEFORE INSERT ON trials FOR EACH ROW EXECUTE FUNCTION nobody(); "
        "ALTER TABLE trials ENABLE ALWAYS TRIGGER deaf",
        "the trigger deaf is not ours",
    ),
    "one that is there under a name of ours": (
        "CREATE TRIGGER trials_no_update BEFORE UPDATE ON chain "
        "FOR EACH ROW EXECUTE FUNCTION trials_append_only()",
        "the trigger trials_no_update of chain is not ours",
    ),
    "a guard that a replica passes by": (
        "ALTER TABLE trials ENABLE TRIGGER trials_no_update",
        "the trigger trials_no_update is missing or switched off",
    ),
    "a guard that is off": (
        "ALTER TABLE trials DISABLE TRIGGER trials_no_update",
        "the trigger trials_no_update is missing or switched off",
    ),
    "a guard with its owner's rights": (
        "ALTER FUNCTION trials_append_only() SECURITY DEFINER",
        "the trigger trials_no_delete does not do what it should",
    ),
    "foreign keys that are off": (
        "ALTER TABLE trials DISABLE TRIGGER ALL; "
        "ALTER TABLE trials ENABLE ALWAYS TRIGGER trials_no_update; "
        "ALTER TABLE trials ENABLE ALWAYS TRIGGER trials_no_delete; "
        "ALTER TABLE trials ENABLE ALWAYS TRIGGER trials_no_truncate",
        "foreign keys of trials are switched off",
    ),
    "a rule": (
        "CREATE RULE deaf AS ON INSERT TO voids DO INSTEAD NOTHING",
        "the rule deaf of voids is not ours",
    ),
    "row-level security": (
        "ALTER TABLE audit ENABLE ROW LEVEL SECURITY",
        "some rows of audit may be hidden by row-level security",
    ),
    "a constraint less": (
        "ALTER TABLE trials DROP CONSTRAINT trials_number_in_exam",
        "the constraint trials_number_in_exam is missing",
    ),
    "a foreign key less": (
        "ALTER TABLE trials DROP CONSTRAINT trials_exam_id_fkey",
        "a foreign key of trials is missing",
    ),
    "a default": (
        "ALTER TABLE trials ALTER COLUMN reaction_ms SET DEFAULT 400",
        "the column trials.reaction_ms is not as it should be",
    ),
    "numbers from elsewhere": (
        "CREATE SEQUENCE other; ALTER TABLE trials ALTER COLUMN id SET DEFAULT nextval('other')",
        "the column trials.id is not as it should be",
    ),
    "a column that may be empty": (
        "ALTER TABLE trials ALTER COLUMN heard DROP NOT NULL",
        "the column trials.heard is not as it should be",
    ),
    "a table that passes for another": (
        "CREATE TABLE more () INHERITS (results)",
        "rows of more pass for rows of results",
    ),
    "a table that a crash empties": (
        "ALTER TABLE login_attempts SET UNLOGGED",
        "login_attempts does not outlive a crash of the server: it is not logged",
    ),
    "a check more": (
        "ALTER TABLE trials ADD CONSTRAINT deaf CHECK (author <> 'bob')",
        "the constraint deaf of trials is not ours",
    ),
    "rights for everybody": (
        "GRANT ALL ON trials TO PUBLIC",
        "everybody may change trials",
    ),
    "a column of another type": (
        "ALTER TABLE trials ALTER COLUMN reaction_ms TYPE text",
        "the column trials.reaction_ms is not as it should be",
    ),
}
BOTH = {
    "an index less": ("DROP INDEX identities_by_code", "the index identities_by_code is missing"),
    "an index more": (
        "CREATE UNIQUE INDEX once ON trials (heard)",
        "the index once is not ours",
    ),
    "a column more": (
        "ALTER TABLE trials ADD COLUMN remark TEXT",
        "the column trials.remark is not ours",
    ),
    "a default that comes with it": (
        "ALTER TABLE trials ADD COLUMN remark TEXT NOT NULL DEFAULT 'x'",
        "the column trials.remark is not ours",
    ),
    "a column less": (
        "ALTER TABLE trials DROP COLUMN reaction_ms",
        "the column trials.reaction_ms is missing",
    ),
    "a table less": ("DROP TABLE tasks", "the table tasks is missing"),
}
SQLITE = {
    "a view": ("CREATE VIEW people_of AS SELECT 1", "the view people_of is not ours"),
    "a row that replaces another": (
        "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = replace(sql, "
        "'UNIQUE (exam_id, number)', 'UNIQUE (exam_id, number) ON CONFLICT REPLACE') "
        "WHERE name = 'trials'",
        "the table trials takes rows otherwise than ours does",
    ),
    "no numbers left": (
        "INSERT INTO sqlite_sequence (name, seq) VALUES ('audit', 9223372036854775807)",
        "the numbers of audit have run out",
    ),
    "bytes for text": (
        "INSERT INTO login_attempts (name_sha256, address, at, succeeded) "
        "VALUES (x'4711', '', '2026-01-01T00:00:00.000000Z', 0)",
        "login_attempts:1 holds bytes instead of text",
    ),
    "a trigger of somebody else": (
        "CREATE TRIGGER deaf AFTER INSERT ON trials BEGIN SELECT 1; END",
        "the trigger deaf is not ours",
    ),
    "a default": (
        "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = "
        "replace(sql, 'reaction_ms DOUBLE', 'reaction_ms DOUBLE DEFAULT 400') "
        "WHERE name = 'trials'",
        "the column trials.reaction_ms is not as it should be",
    ),
    "a constraint less": (
        "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = replace(sql, "
        "'CONSTRAINT trials_number_in_exam UNIQUE (exam_id, number)', "
        "'CONSTRAINT trials_number_in_exam CHECK (1 = 1)') WHERE name = 'trials'; "
        "DELETE FROM sqlite_master WHERE name = 'sqlite_autoindex_trials_1'",
        "trials_number_in_exam",
    ),
}


@pytest.mark.parametrize("attack", [*POSTGRESQL, *BOTH])
def test_what_was_changed_about_postgresql_is_named(
    postgresql_server: PostgresqlServer, attack: str
) -> None:
    statement, said = {**POSTGRESQL, **BOTH}[attack]
    url = postgresql_server.new_database()
    prepare(url)
    with raw(url) as connection:
        connection.execute(statement)
    with Store.open(url) as store:
        assert said in store.check()
    postgresql_server.give_back(url)


@pytest.mark.parametrize("attack", [*SQLITE, *BOTH])
def test_what_was_changed_about_sqlite_is_named(tmp_path: Path, attack: str) -> None:
    statement, said = {**SQLITE, **BOTH}[attack]
    file = str(tmp_path / "store.db")
    prepare(file)
    with raw(file) as connection:
        connection.executescript(statement)
    with Store.open(file) as store:
        assert any(said in one for one in store.check())
