"""The store from the command line: where it lies, who writes, and its upkeep."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from earshift.cli.app import NOT_FINISHED, STORE_TROUBLE, AsJson, app, fail, trouble
from earshift.engine.refusal import Refusal

if TYPE_CHECKING:
    from earshift.store import Store

__all__ = ["EXIT_CODES", "NOT_FINISHED", "STORE_TROUBLE"]

EXIT_CODES = (
    "Exit codes: 0 done; 2 wrong use or input, nothing was changed; 3 not finished, all answers "
    "are kept; 4 trouble with the database."
)

Database = Annotated[
    str | None,
    typer.Option(
        "--db",
        envvar="EARSHIFT_DB",
        show_envvar=False,
        help="SQLite file or postgresql:// address. Default: EARSHIFT_DB, or your own file.",
    ),
]
Author = Annotated[
    str | None,
    typer.Option(
        envvar="EARSHIFT_AUTHOR",
        show_envvar=False,
        help="Your name in the records. Default: EARSHIFT_AUTHOR, or the login name.",
    ),
]
Timezone = Annotated[
    str | None,
    typer.Option(
        envvar="EARSHIFT_TIMEZONE",
        show_envvar=False,
        help="Time zone, e.g. Europe/Berlin. Default: EARSHIFT_TIMEZONE or this machine's.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


def author_name(given: str | None) -> str:
    """Who is written beside every row."""
    if given is not None:
        return given
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        raise fail("the login name is not known; give --author or set EARSHIFT_AUTHOR") from None


def login_name() -> str:
    """Who the operating system says this is, whatever name was given."""
    import getpass
    import os

    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):  # Windows, and a user without an entry
        try:
            return getpass.getuser()
        except (KeyError, OSError, ImportError):
            return "unknown"


def disclosed(
    store: "Store", author: str | None, action: str, subject: str, **details: object
) -> None:
    """A line in the audit: this left the database by the command line, and by whose login.

    `details` are numbers and the program's own words, never what somebody typed.
    """
    told = {"by": "command line", "login": login_name(), **details}
    who = login_name() if author is None else author
    store.add_audit(author=who, action=action, subject=subject, details=told)


@contextmanager
def opened(db: str | None) -> "Iterator[Store]":
    """The store, closed at the end."""
    from earshift.store import Store

    try:
        store = Store.open(db)
    except (Refusal, OSError) as error:
        raise trouble(error) from None
    with store:
        yield store


def is_there(db: str | None) -> bool:
    """Whether there is a store to look into; a look must not make one."""
    from earshift.store.database import address

    try:
        place = address(db)
    except Refusal:
        return True  # to be opened, which says what is wrong with the address
    return not isinstance(place, Path) or place.exists()


def require_there(db: str | None) -> None:
    if not is_there(db):
        raise trouble("there is no database yet")


@contextmanager
def looked_into(db: str | None) -> "Iterator[Store]":
    """The store of a command that only reads. Where there is none yet, an empty one is looked
    into that is gone afterwards: looking makes no database.
    """
    if is_there(db):
        with opened(db) as store:
            yield store
        return
    with TemporaryDirectory(prefix="earshift-") as folder, opened(f"{folder}/none.db") as store:
        yield store


db_commands = typer.Typer(
    help="Make, back up, restore, check, seal, rebuild, upgrade and clear the database.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(db_commands, name="db")


@db_commands.command("backup", epilog=EXIT_CODES)
def db_backup(
    path: Annotated[Path, typer.Argument(help="New file for the copy.")],
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Copy the whole database into a new file; exams can continue meanwhile.

    The copy contains names and hearing data: keep it as safe as the database itself.
    """
    from earshift.clinic.day import BACKUP

    require_there(db)
    with opened(db) as store:
        place = store.describe()
        # First: nobody has a copy of which the database does not know, also if this is killed.
        disclosed(store, author, "export", "database")
        seal = str(store.seal())  # before the copy, which then holds all that is sealed
        try:
            store.backup(path)
        except (Refusal, OSError) as error:
            raise trouble(error) from None
        disclosed(store, author, "made", BACKUP)
    if as_json:
        typer.echo(json.dumps({"database": place, "backup": str(path), "seal": seal}))
    else:
        typer.echo(f"Backup of {place}: {path}")
        typer.echo(f"Seal, to keep elsewhere: {seal}")


@db_commands.command("restore", epilog=EXIT_CODES)
def db_restore(
    path: Annotated[Path, typer.Argument(help="File made by `earshift db backup`.")],
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Make a new database from a backup. Nothing is ever overwritten.

    It still has people who were erased after the backup was made: erase them again.
    """
    from earshift.store import Store

    try:
        Store.restore(path, db)
    except (Refusal, OSError) as error:
        raise trouble(error) from None
    with opened(db) as store:
        place = store.describe()
        disclosed(store, author, "restored", "database")
    if as_json:
        typer.echo(json.dumps({"database": place, "backup": str(path)}))
    else:
        typer.echo(f"Restored {path} into {place}")


@db_commands.command("check", epilog=EXIT_CODES)
def db_check(
    seal: Annotated[
        list[str] | None,
        typer.Option(help="A seal kept elsewhere: nothing before it may have changed. Repeatable."),
    ] = None,
    db: Database = None,
    as_json: AsJson = False,
) -> None:
    """Check that everything in the database is as it was written; exit code 4 if it is not.

    Lists and searches are compared with the records they come from. `earshift db rebuild` makes
    those anew; nothing else can be made again.
    """
    from earshift.clinic.worklist import astray
    from earshift.store import Seal

    require_there(db)
    with opened(db) as store:
        sealed = [Seal.parse(one) for one in seal or ()]
        place, report = store.describe(), store.inspect(sealed)
        problems = list(report.problems)
        # What is damaged cannot be worked out from, and has been named.
        if not problems and (wrong := astray(store)):
            some = ", ".join(f"people:{one}" for one in wrong[:10]) + ", ..." * (len(wrong) > 10)
            problems.append(
                f"the lists do not show {len(wrong)} of the people as the records say ({some})"
            )
    if as_json:
        told = {
            "database": place,
            "problems": problems,
            "notes": list(report.notes),
            "seal": None if report.seal is None else str(report.seal),
            "chained_since": None if report.since is None else report.since.isoformat(),
        }
        typer.echo(json.dumps(told, indent=2))
    else:
        for line in problems or [f"No problems found in {place}"]:
            typer.echo(f"- {line}" if problems else line)
        if report.since is not None:
            typer.echo(
                f"The chain speaks from {report.since:%Y-%m-%d %H:%M} UTC on: what was there "
                "before was chained as it was found."
            )
        for note in report.notes:
            typer.echo(f"Note: {note}.")
    if problems:
        raise trouble(f"{len(problems)} problem{'s' if len(problems) > 1 else ''} in {place}")


@db_commands.command("rebuild", epilog=EXIT_CODES)
def db_rebuild(db: Database = None, as_json: AsJson = False) -> None:
    """Work out again from the records what lists and searches read.

    For a database of which `earshift db check` says that they do not match; no record changes.
    """
    from earshift.clinic.worklist import refresh

    require_there(db)
    with opened(db) as store:
        place, people = store.describe(), refresh(store, everybody=True)
    if as_json:
        typer.echo(json.dumps({"database": place, "people": people}))
    else:
        typer.echo(f"Worked out again in {place}: {people} people")


@db_commands.command("seal", epilog=EXIT_CODES)
def db_seal(db: Database = None, as_json: AsJson = False) -> None:
    """Print the head of the chain over all that is stored. Keep it away from the database.

    Whoever owns the database can rewrite its whole chain, but not so that `db check --seal` still
    finds what was sealed.
    """
    require_there(db)
    with opened(db) as store:
        place, seal = store.describe(), str(store.seal())
    typer.echo(json.dumps({"database": place, "seal": seal}) if as_json else seal)


@db_commands.command("forget", epilog=EXIT_CODES)
def db_forget(db: Database = None, as_json: AsJson = False) -> None:
    """Write the database's files anew, so that none of them holds what was erased.

    `earshift person erase` does so at once. This is for when another program was reading then.
    """
    require_there(db)
    with opened(db) as store:
        place = store.describe()
        store.forget()
    typer.echo(json.dumps({"database": place}) if as_json else f"Written anew: {place}")


@db_commands.command("init", epilog=EXIT_CODES)
def db_init(db: Database = None, as_json: AsJson = False) -> None:
    """Make the tables of a new database. For PostgreSQL: print the SQL of a second role.

    The role that makes the tables owns them, and upgrades and erases. `earshift serve` needs less:
    with a role that only reads and adds it cannot switch the guards off.
    """
    with opened(db) as store:
        place, sql = store.describe(), store.second_role()
    if as_json:
        typer.echo(json.dumps({"database": place, "second_role": sql}))
        return
    typer.echo(f"-- {place} is ready")
    if sql is not None:
        typer.echo(sql)


@db_commands.command("upgrade", epilog=EXIT_CODES)
def db_upgrade(db: Database = None, as_json: AsJson = False) -> None:
    """Upgrade the database of an older earshift for this version.

    An SQLite file is copied first, beside itself. Back up a PostgreSQL database yourself.
    """
    from earshift.store import Store

    try:
        kept = Store.upgrade(db)
    except (Refusal, OSError) as error:
        raise trouble(error) from None
    with opened(db) as store:
        place = store.describe()
    if as_json:
        kept_name = None if kept is None else str(kept)
        typer.echo(json.dumps({"database": place, "backup": kept_name}))
    else:
        typer.echo(f"{place} is up to date")
        if kept is not None:
            typer.echo(f"A copy of the old database: {kept}")
