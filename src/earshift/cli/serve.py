"""`earshift serve`: the web app, for one person on this machine or for a clinic."""

import contextlib
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from earshift.cli.app import app, fail, trouble
from earshift.cli.database import (
    EXIT_CODES,
    Author,
    Database,
    Timezone,
    author_name,
    opened,
)
from earshift.engine.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.engine import URL

    from earshift.web.settings import Settings

# A worker compiles numerical code before it answers its supervisor for the first time.
WORKER_SECONDS = 120
STOP_SECONDS = 10  # for requests that are on their way when the server is told to stop
LOG = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(message)s"}},
    "filters": {"calm": {"()": "earshift.web.calm_log.CalmLog"}},
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["calm"]}
    },
    "loggers": {
        "earshift.web": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
        "uvicorn": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
    },
}


@app.command(epilog=EXIT_CODES)
def serve(
    db: Database = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 means any free one.")
    ] = 8400,
    workers: Annotated[
        int, typer.Option(min=1, help="Number of processes that answer requests.")
    ] = 1,
    certificate: Annotated[str | None, typer.Option(help="File with the TLS certificate.")] = None,
    key: Annotated[str | None, typer.Option(help="File with the key of the certificate.")] = None,
    behind_proxy: Annotated[
        str | None,
        typer.Option(help="IP address of the proxy in front; only that proxy is then answered."),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="Name by which browsers reach this server. May be repeated."),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Do not open a browser.")
    ] = False,
    timezone: Timezone = None,
    author: Author = None,
) -> None:
    """Run the clinic in the browser: exams with headphones, people, reports.

    Without accounts it is for you alone, on this machine: open the link that it prints. To let
    others in, add an account (`earshift user add`) and use TLS; see docs/serve.md.
    """
    from earshift.clinic.zones import as_zone, local_zone
    from earshift.store.accounts import Accounts, sha256
    from earshift.store.database import address
    from earshift.web.settings import Settings, ready_to_serve

    token = secrets.token_urlsafe(32)
    with opened(db) as store:
        place = address(db)
        settings = Settings(
            db=_as_text(place),
            host=host,
            port=port,
            workers=workers,
            certificate=certificate,
            key=key,
            behind_proxy=behind_proxy,
            allowed_hosts=tuple(name.lower() for name in allowed_host or ()),
            launch_sha256=sha256(token),
            zone=as_zone(timezone or local_zone()),
            author=author_name(author),
        )
        settings = ready_to_serve(settings, Accounts(store), is_file=isinstance(place, Path))
        described = store.describe()
    _check_certificate(settings)
    with _listen(settings) as listening:
        settings = replace(settings, port=listening.getsockname()[1])
        link = settings.address
        typer.echo(f"earshift serves {described} at {settings.address}")
        if settings.single_user:
            link = f"{settings.address}open?token={token}"
            typer.echo(f"Open this link. It works once and is for you alone:\n  {link}")
        typer.echo("Stop with Ctrl-C.")
        opens = settings.loopback and settings.behind_proxy is None and not no_browser
        with _redirect_to(link) if opens else contextlib.nullcontext() as page:
            if page is not None:
                _open_browser(page.as_uri())
            if settings.single_user and sys.stdin.isatty():
                typer.echo("For a new link, press Enter.")
                threading.Thread(target=_offer_links, args=(settings,), daemon=True).start()
            _run(settings, listening)
    typer.echo("Stopped.")


def _as_text(place: "Path | URL") -> str:
    """The address as the workers need it, with a password if it has one."""
    return str(place) if isinstance(place, Path) else place.render_as_string(hide_password=False)


def _check_certificate(settings: "Settings") -> None:
    if settings.certificate is None:
        return
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.certificate, settings.key)
    except ssl.SSLError as error:
        raise Refusal(
            f"{settings.certificate} and {settings.key} are not a certificate and its key "
            f"({error.reason})"
        ) from None


def _listen(settings: "Settings") -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=512)
    except OSError as error:
        raise Refusal(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror or error}",
            code="port-taken",
        ) from None


@contextlib.contextmanager
def _redirect_to(link: str) -> "Iterator[Path]":
    """A page that leads to a link, in a file that only this user can read: what is on a browser's
    command line every user of the machine can."""
    with tempfile.TemporaryDirectory(prefix="earshift-") as folder:  # of this user alone
        page = Path(folder) / "open.html"
        page.touch(0o600)
        page.write_text(
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>earshift</title>'
            f'<meta http-equiv="refresh" content="0; url={link}">'
            f'<p><a href="{link}">earshift</a></p></html>\n',
            "utf-8",
        )
        yield page


def _open_browser(page: str) -> None:
    """In a thread, as some browsers do not return before they are closed."""
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(page,), daemon=True).start()


def _offer_links(settings: "Settings") -> None:
    """Another link whenever somebody presses Enter who was away for longer than a session."""
    from earshift.store import Store
    from earshift.store.accounts import Accounts

    assert settings.launch_sha256 is not None
    # Not by a file object, whose lock would be held when the program ends.
    while os.read(sys.stdin.fileno(), 1024):
        try:
            with Store.open(settings.db) as store:
                token = Accounts(store).offer_launch(settings.launch_sha256, settings.author)
        except Refusal as refused:
            typer.secho(f"earshift: {refused}", fg="red", err=True)
        else:
            typer.echo(f"  {settings.address}open?token={token}")


def _run(settings: "Settings", listening: socket.socket) -> None:
    """Answer until told to stop; requests on their way are finished."""
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    from earshift.web.connections import KEEP_ALIVE_SECONDS, BoundedProtocol, ProxiedProtocol
    from earshift.web.settings import ENVIRONMENT

    os.environ[ENVIRONMENT] = settings.to_environment()
    config = uvicorn.Config(
        "earshift.web:worker",
        factory=True,
        workers=settings.workers,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
        log_config=LOG,
        access_log=False,  # it would log whole addresses; the app has a log of its own
        server_header=False,
        proxy_headers=False,  # the app itself knows whom to believe
        ws="none",
        http=BoundedProtocol if settings.behind_proxy is None else ProxiedProtocol,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
        timeout_worker_healthcheck=WORKER_SECONDS,
    )
    if settings.workers > 1:
        supervisor = Multiprocess(config, sockets=[listening])
        supervisor.run()
        if any(
            process.exitcode == uvicorn.config.STARTUP_FAILURE for process in supervisor.processes
        ):
            raise trouble("a worker could not start; the lines above say why")
        return
    # A plain end when told to: the server gives the signal back once all is answered.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        pass
    except SystemExit:
        raise fail("the server could not start; the lines above say why") from None
