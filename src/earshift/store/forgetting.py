"""That what was erased lies in no file of the database any more.

A deleted row is gone for every query, but its bytes stay in the files until they are written anew:
SQLite leaves them in the gaps of its pages and in its log, PostgreSQL in dead rows and in the
statistics of its planner.
"""

import time

from sqlalchemy import Connection, Engine

from earshift.store import database
from earshift.store import tables as t
from earshift.store.errors import StoreTrouble

PAUSE_SECONDS = 0.2  # between looks at whether another program still reads


class NotForgotten(StoreTrouble):
    """What was erased is erased, and its bytes may still lie in the files."""

    code = "not-forgotten"


READ = "another program is reading"


def forget(engine: Engine, *, with_trials: bool = True) -> None:
    """Write all files anew that may hold what was erased; without `with_trials`, who and what was
    typed alone.

    Waits for programs that read, as they may still see what was erased.
    """
    try:
        if engine.dialect.name == "sqlite":
            _forget_sqlite(engine)
        else:
            _forget_postgresql(engine, with_trials)
    except database.Busy:
        raise _unfinished(engine, READ) from None
    except NotForgotten:
        raise
    except StoreTrouble as trouble:
        raise _unfinished(engine, f"they could not be written anew ({trouble.code})") from None


def _unfinished(engine: Engine, why: str) -> NotForgotten:
    return NotForgotten(
        "everything is erased, but the files of {database} may still hold it: {reason}",
        advice="run `earshift db forget` when that has ended",
        database=database.describe(engine.url),
        reason=why,
    )


def _forget_sqlite(engine: Engine) -> None:
    database.outside_transactions(engine, "VACUUM")
    # Waits for readers as long as a writer waits; the log is gone only if none was left.
    busy, *_ = database.outside_transactions(engine, "PRAGMA wal_checkpoint(TRUNCATE)")
    if busy:
        raise _unfinished(engine, READ)


def _forget_postgresql(engine: Engine, with_trials: bool) -> None:
    names = [
        name
        for name, table in t.metadata.tables.items()
        if table.info["rebuilt"]
        or table.info["erased_with"] in ("identity", *(("trials",) if with_trials else ()))
    ]
    with (
        database.plain_errors(engine),
        engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection,
    ):
        _wait_for_readers(connection)
        for name in names:
            connection.exec_driver_sql(f"VACUUM (FULL, ANALYZE) {name}")
        # Of text the planner keeps samples, in rows of its own that die with every analysis.
        connection.exec_driver_sql("VACUUM (FULL) pg_catalog.pg_statistic")


def _wait_for_readers(connection: Connection) -> None:
    """Rows that an older transaction may still see are kept by VACUUM, wherever it has looked."""
    now = connection.exec_driver_sql("SELECT pg_current_xact_id()::xid::text").scalar_one()
    older = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        f"AND pid <> pg_backend_pid() AND age(backend_xmin) >= age('{now}'::xid)"
    )
    give_up = time.monotonic() + database.WAIT_SECONDS
    while connection.exec_driver_sql(older).scalar_one():
        if time.monotonic() > give_up:
            raise _unfinished(connection.engine, READ)
        time.sleep(PAUSE_SECONDS)
