"""What somebody who has signed in has to do before anything else."""

from typing import Literal

from earshift.clinic.site import site_settings
from earshift.engine.refusal import Conflict
from earshift.store import Store
from earshift.store.accounts import Accounts, User

Duty = Literal["password", "second factor"]


def needs_second_factor(store: Store, user: User) -> bool:
    """Whether the site asks for a second factor of this user."""
    return user.role == "admin" and bool(site_settings(store)["admin_second_factor"].value)


def first_duty(store: Store, user: User) -> Duty | None:
    """A password that somebody else chose is changed, then a needed second factor is set up."""
    if user.temporary:
        return "password"
    if not user.second_factor and needs_second_factor(store, user):
        return "second factor"
    return None


def prove_signer(accounts: Accounts, store: Store, user: User, password: str, code: str) -> None:
    """That somebody at this machine is this user, and alone knows the password."""
    accounts.prove_here(user.name, password, code)
    duty = first_duty(store, user)
    if duty == "password":
        raise Conflict(
            "somebody else chose this password: it is changed before anything is signed",
            code="first-password",
            user=user.name,
        )
    if duty is not None:
        raise Conflict("at this site administrators set up a second factor before they sign")


def drop_own_factor(store: Store, accounts: Accounts, user: User) -> None:
    """A user's own decision to do without a second factor, where the site leaves it to them."""
    if needs_second_factor(store, user):
        raise Conflict("at this site administrators need a second factor; set up another one")
    accounts.drop_factor(user.name, author=user.name, reason="own decision")
