"""Users of the web app and their API tokens. A password is typed or piped, never an argument."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from earshift.cli.app import AsJson, app
from earshift.cli.database import (
    EXIT_CODES,
    Author,
    Database,
    author_name,
    disclosed,
    looked_into,
    opened,
)
from earshift.cli.terminal import printable, show_json, table
from earshift.engine.refusal import Refusal

if TYPE_CHECKING:
    from earshift.store import Store
    from earshift.store.accounts import Accounts, Key

users = typer.Typer(
    help="Who may sign in to the web app.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(users, name="user")
tokens = typer.Typer(
    help="API tokens, for programs that use the web app in a user's name.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(tokens, name="token")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")]
Role = Annotated[
    str, typer.Option(help="examiner, reviewer, who also signs, or admin, who also manages users.")
]
Reason = Annotated[str, typer.Option(help="The reason; it is stored.")]
FromStdin = Annotated[
    bool,
    typer.Option("--password-stdin", help="Read the password from standard input, one line."),
]


def _accounts(store: "Store") -> "Accounts":
    from earshift.store.accounts import Accounts

    return Accounts(store)


def typed_password(from_stdin: bool, prompt: str) -> str:
    """A password typed without being shown, or a line from a pipe."""
    if from_stdin:
        line = sys.stdin.readline(2000)
        return line.rstrip("\r\n")
    if not sys.stdin.isatty():
        raise Refusal("a password must be typed at a terminal", code="not-a-terminal")
    import getpass

    return getpass.getpass(prompt)


def _new_password(from_stdin: bool) -> str:
    """A new password, typed twice unless it comes from a pipe."""
    first = typed_password(from_stdin, "New password (not shown): ")
    if from_stdin:
        return first
    import getpass

    if getpass.getpass("Once more: ") != first:
        raise Refusal("the two passwords differ; nothing was changed")
    return first


@users.command("add", epilog=EXIT_CODES)
def user_add(
    name: Name,
    role: Role = "examiner",
    own: Annotated[
        bool,
        typer.Option("--own", help="The user has typed the password: it need not be changed."),
    ] = False,
    password_stdin: FromStdin = False,
    db: Database = None,
    author: Author = None,
) -> None:
    """Add a user. You are asked for the password twice; the first user has to be an admin.

    At the first sign-in the user has to choose another password.
    """
    with opened(db) as store:
        password = _new_password(password_stdin)
        user = _accounts(store).add_user(
            name, password, role=role, author=author_name(author), temporary=not own
        )
    typer.echo(f"Added {user.role} {printable(user.name)}")


@users.command("list", epilog=EXIT_CODES)
def user_list(db: Database = None, author: Author = None, as_json: AsJson = False) -> None:
    """List all users."""
    with looked_into(db) as store:
        found = _accounts(store).users()
        disclosed(store, author, "list", "users", users=len(found))
    if as_json:
        show_json([asdict(user) for user in found])
        return
    rows = [
        [
            u.name,
            u.role,
            u.state,
            "to be changed" if u.temporary else "own",
            "yes" if u.second_factor else "no",
            f"{u.changed_at:%Y-%m-%d %H:%M} UTC",
        ]
        for u in found
    ]
    table("Users", ["name", "role", "state", "password", "second factor", "changed"], rows)


@users.command("password", epilog=EXIT_CODES)
def user_password(
    name: Name,
    own: Annotated[
        bool,
        typer.Option("--own", help="Change your own: the current password is asked for first."),
    ] = False,
    password_stdin: FromStdin = False,
    reason: Reason = "new password",
    db: Database = None,
    author: Author = None,
) -> None:
    """Set a new password. The user's sessions and tokens end.

    At the next sign-in the user has to choose another one, unless it is their own (--own). With
    --own and --password-stdin the first line is the current password, the second the new one.
    """
    with opened(db) as store:
        accounts = _accounts(store)
        accounts.user(name)  # a wrong name is refused before anybody types a password
        if own:
            current = typed_password(password_stdin, "Current password (not shown): ")
            accounts.change_own_password_here(name, current, _new_password(password_stdin))
        else:
            password = _new_password(password_stdin)
            accounts.change_user(name, password=password, reason=reason, author=author_name(author))
    typer.echo("Password changed; all sessions and tokens of this user have ended")


@users.command("role", epilog=EXIT_CODES)
def user_role(
    name: Name,
    role: Annotated[str, typer.Argument(help="examiner, reviewer or admin.")],
    reason: Reason = "new role",
    db: Database = None,
    author: Author = None,
) -> None:
    """Change a user's role, at once."""
    with opened(db) as store:
        user = _accounts(store).change_user(
            name, role=role, reason=reason, author=author_name(author)
        )
    typer.echo(f"{printable(user.name)} is {user.role} now")


@users.command("disable", epilog=EXIT_CODES)
def user_disable(
    name: Name, reason: Reason = "disabled", db: Database = None, author: Author = None
) -> None:
    """Lock a user out. Sessions and tokens end at once; what the user did is kept."""
    _set_state(name, "disabled", reason, db, author)


@users.command("enable", epilog=EXIT_CODES)
def user_enable(
    name: Name, reason: Reason = "enabled", db: Database = None, author: Author = None
) -> None:
    """Let a disabled user sign in again, with the same password."""
    _set_state(name, "active", reason, db, author)


@users.command("let-in", epilog=EXIT_CODES)
def user_let_in(name: Name, db: Database = None, author: Author = None) -> None:
    """Print a pass for a user whom wrong passwords keep waiting. It works once, for 30 minutes.

    The sign-in page asks for it when somebody has to wait. The password is needed all the same.
    """
    with opened(db) as store:
        code = _accounts(store).let_in(name, author=author_name(author))
    typer.echo(code)


@users.command("reset-second-factor", epilog=EXIT_CODES)
def user_reset_second_factor(
    name: Name, reason: Reason = "lost", db: Database = None, author: Author = None
) -> None:
    """Take away the second factor of a user who has lost it. Their sessions end."""
    with opened(db) as store:
        _accounts(store).drop_factor(name, author=author_name(author), reason=reason)
    typer.echo(f"{printable(name)} signs in by the password alone now")


@users.command("sessions", epilog=EXIT_CODES)
def user_sessions(name: Name, db: Database = None, as_json: AsJson = False) -> None:
    """List where a user is signed in."""
    with looked_into(db) as store:
        accounts = _accounts(store)
        found = accounts.sessions(accounts.user(name).name)
    if as_json:
        show_json([asdict(one) for one in found])
        return
    rows = [
        [f"{one.began:%Y-%m-%d %H:%M} UTC", f"{one.seen:%H:%M} UTC", one.browser, one.address]
        for one in found
    ]
    table("Sessions", ["since", "last used", "browser", "address"], rows)


@users.command("end-sessions", epilog=EXIT_CODES)
def user_end_sessions(
    name: Name, reason: Reason = "ended", db: Database = None, author: Author = None
) -> None:
    """Sign a user out everywhere. API tokens stay valid."""
    with opened(db) as store:
        ended = _accounts(store).end_sessions(name, author=author_name(author), reason=reason)
    typer.echo(f"{ended} session{'' if ended == 1 else 's'} ended")


def _set_state(name: str, state: str, reason: str, db: str | None, author: str | None) -> None:
    with opened(db) as store:
        user = _accounts(store).change_user(
            name, state=state, reason=reason, author=author_name(author)
        )
    typer.echo(f"{printable(user.name)} is {user.state}")


@tokens.command("add", epilog=EXIT_CODES)
def token_add(
    user: Annotated[str, typer.Argument(metavar="USER", help="The user in whose name it acts.")],
    name: Annotated[str, typer.Option(help="What it is for.")],
    days: Annotated[float, typer.Option(help="Number of days for which it is valid.")] = 90.0,
    role: Annotated[
        str | None,
        typer.Option(help="Role of the token, at most the user's own. Default: the user's."),
    ] = None,
    db: Database = None,
    author: Author = None,
) -> None:
    """Create an API token and print it. It is shown only once."""
    with opened(db) as store:
        key, secret = _accounts(store).make_token(
            user, name=name, days=days, role=role, author=author_name(author)
        )
    typer.echo(f"Token {key.public_id}, {key.role}, until {key.expires_at:%Y-%m-%d}:", err=True)
    typer.echo(secret)


@tokens.command("list", epilog=EXIT_CODES)
def token_list(db: Database = None, as_json: AsJson = False) -> None:
    """List all valid tokens, without their secrets."""

    def shown(key: "Key") -> dict[str, str]:
        return {
            "id": key.public_id,
            "user": "" if key.user is None else key.user.name,
            "name": key.name,
            "role": key.role,
            "expires_at": f"{key.expires_at:%Y-%m-%d %H:%M} UTC",
        }

    with looked_into(db) as store:
        found = [shown(key) for key in _accounts(store).tokens()]
    if as_json:
        show_json(found)
    else:
        columns = ["id", "user", "name", "role", "expires_at"]
        table("Tokens", columns, [[one[column] for column in columns] for one in found])


@tokens.command("revoke", epilog=EXIT_CODES)
def token_revoke(
    public_id: Annotated[str, typer.Argument(metavar="TOKEN", help="Its id in the list.")],
    db: Database = None,
    author: Author = None,
) -> None:
    """Revoke a token: it stops working at once."""
    with opened(db) as store:
        _accounts(store).revoke_token(public_id, author=author_name(author))
    typer.echo("The token no longer works")
