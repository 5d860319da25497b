"""How the web app is reached and by whom, and what has to be so before it may start.

One user on this machine needs no account; whoever else could reach the app makes accounts and an
encrypted connection necessary, and without them it refuses to start.
"""

import ipaddress
import json
import os
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from earshift.engine.refusal import Conflict, NotFound, Refusal

if TYPE_CHECKING:
    from earshift.store.accounts import Accounts

PORT = 8400
ENVIRONMENT = "EARSHIFT_SERVE"  # how worker processes get the settings
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\]")


@dataclass(frozen=True)
class Settings:
    """Everything `create_app` has to know. `launch_sha256` is of the single user's launch token."""

    db: str | None = None
    host: str = "127.0.0.1"
    port: int = PORT
    workers: int = 1
    certificate: str | None = None
    key: str | None = None
    behind_proxy: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    single_user: bool = False
    launch_sha256: str | None = None
    zone: str = "UTC"
    author: str = "local user"

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise Refusal("a port must be 0 (any free one) to 65535", got=self.port)
        if self.workers < 1:
            raise Refusal("at least one worker is needed", got=self.workers)
        if (self.certificate is None) != (self.key is None):
            raise Refusal("TLS needs both a certificate and its key", code="half-a-certificate")
        for file in (self.certificate, self.key):
            if file is not None and not Path(file).is_file():
                raise NotFound("there is no {file} for TLS", file=f"file {file}")
        if self.behind_proxy is not None:
            try:
                ipaddress.ip_network(self.behind_proxy)
            except ValueError:
                raise Refusal(
                    "a proxy must be the IP address or network that it connects from",
                    code="proxy-address",
                    got=self.behind_proxy,
                ) from None
        for name in self.allowed_hosts:
            if _HOST.fullmatch(name) is None:
                raise Refusal(
                    "an allowed host must be a name in lower case, without a port",
                    code="host-name",
                    got=name,
                )
        if self.single_user and self.launch_sha256 is None:
            raise Refusal("a single user signs in by a launch token; give launch_sha256")

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def secure(self) -> bool:
        """Whether browsers reach the app over TLS, our own or the proxy's."""
        return self.certificate is not None or self.behind_proxy is not None

    @property
    def cookie(self) -> str:
        """The session's cookie. Cookies ignore ports, so two local servers need two names."""
        return "__Host-earshift" if self.secure else f"earshift-{self.port}"

    @property
    def browser_cookie(self) -> str:
        """The cookie by which a browser is known in which somebody has signed in."""
        return f"{self.cookie}-known"

    @property
    def host_names(self) -> frozenset[str]:
        """What a request may name as its host; anything else is a stranger's page."""
        own = f"[{self.host}]" if ":" in self.host else self.host.lower()
        return frozenset({*LOOPBACK_NAMES, *self.allowed_hosts, own} - {"0.0.0.0", "[::]"})

    @property
    def address(self) -> str:
        """Where the app listens, as a browser's address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.certificate else ''}://{host}:{self.port}/"

    def to_environment(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_environment(cls) -> Self:
        """The settings that `earshift serve` left for its workers."""
        try:
            values = json.loads(os.environ[ENVIRONMENT])
        except (KeyError, json.JSONDecodeError):
            raise Refusal(
                f"{ENVIRONMENT} does not contain the settings that earshift serve puts there"
            ) from None
        return cls(**values | {"allowed_hosts": tuple(values["allowed_hosts"])})


def ready_to_serve(settings: Settings, accounts: "Accounts", *, is_file: bool) -> Settings:
    """The settings with `single_user` decided, or a ValueError that says what is missing.

    Without accounts whoever connects is the user, so nobody else may be able to. A launch token's
    hash has to be in `settings` then.
    """
    if not settings.loopback and not settings.secure:
        raise Refusal(
            f"{settings.host} can be reached from other machines, and passwords would cross the "
            "network unencrypted",
            code="unencrypted",
        )
    if accounts.any_users():
        if not accounts.any_admin():
            raise Conflict("no active user is an admin", code="no-admin")
        return replace(settings, single_user=False, launch_sha256=None)
    for needs_accounts, why in (
        (not settings.loopback, f"{settings.host} can be reached from other machines"),
        (settings.behind_proxy is not None, "a proxy lets others in"),
        (bool(settings.allowed_hosts), "another host name lets others in"),
        (settings.workers > 1, "several workers serve several users"),
        (not is_file, "others may use this PostgreSQL database"),
    ):
        if needs_accounts:
            raise Conflict(f"{why}, and there is no account", code="needs-account")
    return replace(settings, single_user=True)
