"""Who may come in: users with roles, and the keys that they and their listeners hold.

Rows are only added, each with its audit row; of a user the newest state counts.
"""

from collections.abc import Callable
from datetime import datetime

from earshift.store import Store, checks
from earshift.store.accounts.attempts import (
    BROWSER_KNOWN,
    FREE_BY_ADDRESS,
    FREE_BY_NAME,
    LONGEST_WAIT,
    PASS_LASTS,
    Throttled,
)
from earshift.store.accounts.factors import CodeNeeded, Offer, WrongCode, offer_factor
from earshift.store.accounts.keys import ROLES, Key, User, sha256
from earshift.store.accounts.links import LINK_HOURS, Link, Links
from earshift.store.accounts.sessions import (
    OpenSession,
    Sessions,
    WrongPassword,
    csrf_token,
    session_id,
)
from earshift.store.accounts.tokens import SHORTEST_TOKEN_DAYS, TOKEN_DAYS, Tokens
from earshift.store.accounts.users import as_password, as_user_name

__all__ = [
    "BROWSER_KNOWN",
    "FREE_BY_ADDRESS",
    "FREE_BY_NAME",
    "LINK_HOURS",
    "LONGEST_WAIT",
    "PASS_LASTS",
    "ROLES",
    "SHORTEST_TOKEN_DAYS",
    "TOKEN_DAYS",
    "Accounts",
    "CodeNeeded",
    "Key",
    "Link",
    "Offer",
    "OpenSession",
    "Throttled",
    "User",
    "WrongCode",
    "WrongPassword",
    "as_password",
    "as_user_name",
    "csrf_token",
    "offer_factor",
    "session_id",
    "sha256",
]


class Accounts(Sessions, Tokens, Links):
    """Users and keys in a store. Calls may come from any thread; the clock is for tests."""

    def __init__(self, store: Store, clock: Callable[[], datetime] = checks.now) -> None:
        super().__init__(store.engine, clock)
