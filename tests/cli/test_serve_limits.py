"""The real server without a proxy: slow and many connections, a flood in the log, and the launch
link, which is on no process's command line."""

import logging
import socket
import stat
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from earshift.cli.serve import _redirect_to
from earshift.web import connections
from earshift.web.calm_log import ALIKE_IN_WINDOW, ALL_IN_WINDOW, CalmLog
from support.web import Served, with_users

# A program of its own, so that the limits can be small enough for a test to meet them.
SMALL = """
import sys
from earshift.web import connections as c
c.REQUEST_SECONDS = c.BODY_SECONDS = 2
c.KEEP_ALIVE_SECONDS = 2
c.BoundedProtocol.most_of_one_address = 20
sys.argv = ["earshift", *sys.argv[1:]]
from earshift.cli import app
app()
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with small limits, without a proxy."""
    folder = tmp_path_factory.mktemp("serve")
    with_users(str(folder / "store.db"))
    with pytest.MonkeyPatch.context() as patch:
        script = folder / "small.py"
        script.write_text(SMALL)
        program = folder / "python"  # what `Served` starts, with our limits in front
        program.write_text(f'#!/bin/sh\nshift 2\nexec {sys.executable} {script} "$@"\n')
        program.chmod(0o700)
        patch.setattr(sys, "executable", str(program))
        started = Served(folder, "--db", "store.db", "--port", "0")
    with started:
        yield started


def connected(served: Served) -> socket.socket:
    place = urlsplit(served.address)
    assert place.hostname is not None
    return socket.create_connection((place.hostname, place.port or 80), timeout=60)


def is_closed(one: socket.socket) -> bool:
    """Whether the server ends a connection; waits for as long as the socket's own limit."""
    try:
        while one.recv(4096):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /api/health HT",
        b"POST /api/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{",
        b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["nothing", "half a head", "half a body", "a request, then nothing"],
)
def test_a_connection_that_stalls_is_closed(small: Served, sent: bytes) -> None:
    with connected(small) as one:
        one.sendall(sent)
        assert is_closed(one)


def test_a_byte_now_and_then_does_not_keep_a_connection(small: Served) -> None:
    with connected(small) as one:
        closed = threading.Event()

        def drip() -> None:
            try:
                for byte in b"GET /api/health HTTP/1.1\r\nX-Slow: " + b"x" * 1000:
                    one.sendall(bytes([byte]))
                    if closed.wait(0.2):
                        return
            except OSError:
                pass

        dripping = threading.Thread(target=drip)
        dripping.start()
        assert is_closed(one)
        closed.set()
        dripping.join()


def test_one_address_has_a_share_and_gets_it_back(small: Served) -> None:
    held = [connected(small) for _ in range(20)]
    time.sleep(0.5)  # for the server to take them all
    with connected(small) as one_more:
        assert is_closed(one_more)
    for one in held:
        one.close()
    for _ in range(600):  # it notices that they are gone
        try:
            if httpx.get(f"{small.address}/api/health", timeout=60).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError("the server did not give the connections back")


def test_a_flood_of_requests_does_not_fill_the_log(small: Served) -> None:
    with httpx.Client(base_url=small.address, timeout=60) as client:
        assert client.get("/api/health").status_code == 200
        before = len(small.log_text())
        began, times = time.monotonic(), 0
        while times < 3 * ALIKE_IN_WINDOW:
            client.get("/no-such-place")
            times += 1
        windows = 2 + (time.monotonic() - began) // 10
    grown = small.log_text()[before:]
    lines = grown.count("404")
    assert 0 < lines <= windows * ALIKE_IN_WINDOW
    for _ in range(3):  # bytes that are no HTTP at all have their line, too
        with connected(small) as one:
            one.sendall(b"\x16\x03\x01\r\n\r\n")
            is_closed(one)


def test_the_log_says_how_much_was_left_out() -> None:
    now = 0.0
    calm = CalmLog(lambda: now)

    def line(status: int, level: int = logging.INFO) -> logging.LogRecord:
        return logging.LogRecord("x", level, "", 0, "%s %s %.0f ms", ("GET /x", status, now), None)

    written = [calm.filter(line(404)) for _ in range(ALIKE_IN_WINDOW + 7)]
    assert written.count(True) == ALIKE_IN_WINDOW
    assert calm.filter(line(200))  # another kind has its own count
    for status in range(ALL_IN_WINDOW):
        calm.filter(line(status + 1000))
    assert not calm.filter(line(201))
    assert calm.filter(line(500, logging.ERROR))  # what failed is not lost among them
    now = 11.0
    next_one = line(404)
    assert calm.filter(next_one)
    assert "lines were left out in 11 s" in next_one.getMessage()
    assert calm.filter(line(404))


def test_behind_a_proxy_its_address_is_everybodys() -> None:
    assert connections.ProxiedProtocol.most_of_one_address == connections.MOST_CONNECTIONS
    assert connections.BoundedProtocol.most_of_one_address < connections.MOST_CONNECTIONS


# The launch link


def test_the_link_is_in_a_file_that_others_cannot_read() -> None:
    with _redirect_to("http://127.0.0.1:1/open?token=secret") as page:
        assert stat.S_IMODE(page.stat().st_mode) == 0o600
        assert stat.S_IMODE(page.parent.stat().st_mode) == 0o700
        assert "token=secret" in page.read_text()
    assert not page.exists()


def test_the_launch_link_is_on_no_command_line(tmp_path: Path) -> None:
    """A browser of our own notes what it was started with, and lives while we look."""
    noted = tmp_path / "noted"
    browser = tmp_path / "browser"
    kept = f'echo "$@" > {noted}\ncp "${{1#file://}}" {tmp_path}/page\nsleep 20'
    browser.write_text(f"#!/bin/sh\n{kept}\n")
    browser.chmod(0o700)
    with _with_browser(tmp_path, str(browser)) as served:
        token = served.link.partition("token=")[2]
        for _ in range(600):
            if (tmp_path / "page").exists() and (tmp_path / "page").read_text().endswith(">\n"):
                break
            time.sleep(0.1)
        assert noted.read_text().startswith("file://")
        lines = [_command_line(one) for one in Path("/proc").iterdir() if one.name.isdigit()]
        assert any(str(browser).encode() in line for line in lines)  # it is there to be seen
        assert not any(token.encode() in line for line in lines)
        page = (tmp_path / "page").read_text()
        assert token in page
        with httpx.Client(base_url=served.address, timeout=60) as client:
            told = client.get(served.link, headers={"Sec-Fetch-Site": "cross-site"})
            assert told.status_code == 200
            assert client.get("/api/me").json()["single_user"] is True


def _command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:  # has ended meanwhile
        return b""


def _with_browser(folder: Path, browser: str) -> Served:
    """`earshift serve` as a person starts it, who has this browser."""
    program = folder / "python"
    program.write_text(
        f'#!/bin/sh\nshift 4\nBROWSER="{browser}" '
        f'exec {sys.executable} -m earshift.cli serve "$@"\n'
    )
    program.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(program))
        return Served(folder, "--db", "store.db", "--port", "0")
