"""Passwords to be changed, second factors, sessions listed and ended, links that die with their
maker, and throttling that locks nobody out; on both databases, with a clock of their own."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pyotp
import pytest
from sqlalchemy import select
from test_accounts import ELSEWHERE, HERE, OTHER, PASSWORD, Clock, clock

from earshift.store import Store, StoreError
from earshift.store import tables as t
from earshift.store.accounts import (
    Accounts,
    CodeNeeded,
    Key,
    Throttled,
    WrongCode,
    WrongPassword,
    offer_factor,
)
from earshift.store.accounts import attempts as at
from earshift.store.database import reading

__all__ = ["clock"]


@pytest.fixture
def accounts(store: Store, clock: Clock) -> Accounts:
    made = Accounts(store, clock)
    made.add_user("ada", PASSWORD, role="admin", author="test", temporary=False)
    return made


def session_of(accounts: Accounts, name: str = "ada", **how: str) -> tuple[Key, str]:
    signed_in = accounts.sign_in(name, PASSWORD, HERE, **how)
    assert signed_in is not None
    key = accounts.session(signed_in[1])
    assert key is not None
    return key, signed_in[1]


def wrong(accounts: Accounts, name: str = "ada", address: str = ELSEWHERE, **how: str) -> str:
    try:
        return "in" if accounts.sign_in(name, "wrong password here", address, **how) else "wrong"
    except Throttled:
        return "throttled"


def enrolled(accounts: Accounts, clock: Clock) -> tuple[pyotp.TOTP, list[str]]:
    key, secret = session_of(accounts)
    assert key.user is not None
    offer = offer_factor(key.user, secret)
    app = pyotp.TOTP(offer.secret)
    codes = accounts.take_factor(key, secret, offer.secret, offer.proof, app.at(clock.now))
    clock.pass_by(seconds=60)
    return app, codes


# Passwords


def test_a_password_that_an_admin_chose_has_to_be_changed(accounts: Accounts) -> None:
    assert accounts.add_user("bob", PASSWORD, role="examiner", author="ada").temporary
    key, _ = session_of(accounts, "bob")
    user, secret = accounts.change_own_password(key, PASSWORD, OTHER, "", HERE)
    assert not user.temporary
    assert accounts.session(secret) is not None
    assert accounts.change_user("bob", role="reviewer", author="ada", reason="x").temporary is False
    assert accounts.change_user("bob", password=PASSWORD, author="ada", reason="x").temporary


def test_an_own_new_password_ends_all_that_the_old_one_opened(accounts: Accounts) -> None:
    key, _ = session_of(accounts)
    _, other = session_of(accounts)
    _, token = accounts.make_token("ada", name="script", days=1, author="ada")
    with pytest.raises(WrongPassword):
        accounts.change_own_password(key, "not my password", OTHER, "", HERE)
    for refused in (PASSWORD, "short"):
        with pytest.raises(StoreError):
            accounts.change_own_password(key, PASSWORD, refused, "", HERE)
    assert accounts.session(other) is not None
    _, secret = accounts.change_own_password(key, PASSWORD, OTHER, "", HERE)
    assert accounts.session(other) is None
    assert accounts.token(token) is None
    assert accounts.session(secret) is not None
    assert accounts.sign_in("ada", PASSWORD, HERE) is None
    assert accounts.sign_in("ada", OTHER, HERE) is not None


def test_an_account_from_before_goes_on_with_its_letters(accounts: Accounts, store: Store) -> None:
    for name in ("zoë", "аda", "ａda", "straße"):
        with pytest.raises(StoreError, match="a to z") as refused:
            accounts.add_user(name, PASSWORD, role="examiner", author="ada")
        assert refused.value.code == "user-name"
    # As a version that allowed it stored one.
    accounts.add_user("zoe", PASSWORD, role="examiner", author="ada", temporary=False)
    with store.engine.begin() as connection:
        old = connection.execute(select(t.users).where(t.users.c.name == "zoe")).one()
        state = connection.execute(
            select(t.user_states).where(t.user_states.c.user_id == old.id)
        ).one()
        connection.execute(t.users.insert().values(name="zoë", created_at=old.created_at))
        new = connection.execute(select(t.users.c.id).where(t.users.c.name == "zoë")).scalar_one()
        values = {**state._mapping, "user_id": new, "id": None}
        del values["id"]
        connection.execute(t.user_states.insert().values(**values))
    session_of(accounts, "ZOË")
    assert accounts.change_user("zoë", state="disabled", author="ada", reason="x").active is False


# The second factor


def test_signing_in_asks_for_a_code_that_works_once(accounts: Accounts, clock: Clock) -> None:
    app, _ = enrolled(accounts, clock)
    assert accounts.sign_in("ada", OTHER, HERE) is None  # told as without a second factor
    with pytest.raises(CodeNeeded):
        accounts.sign_in("ada", PASSWORD, HERE)
    for guess in ("000000", "", "abc", "１２３４５６", "0" * 60):
        with pytest.raises((WrongCode, CodeNeeded)):
            accounts.sign_in("ada", PASSWORD, HERE, code=guess)
    code = app.at(clock.now)
    assert accounts.sign_in("ada", PASSWORD, HERE, code=f"{code[:3]} {code[3:]}")
    with pytest.raises(WrongCode, match="used already"):
        accounts.sign_in("ada", PASSWORD, HERE, code=code)
    clock.pass_by(seconds=29)  # the code before the one that is shown now counts, later ones not
    assert accounts.sign_in("ada", PASSWORD, HERE, code=app.at(clock.now, 1))
    old = app.at(clock.now)
    clock.pass_by(seconds=90)
    with pytest.raises(WrongCode, match="wrong"):
        accounts.sign_in("ada", PASSWORD, HERE, code=old)


def test_one_code_in_many_hands_opens_one_session(accounts: Accounts, clock: Clock) -> None:
    app, recovery = enrolled(accounts, clock)
    for code in (app.at(clock.now), recovery[0]):

        def attempt(_: int, code: str = code) -> bool:
            try:
                return accounts.sign_in("ada", PASSWORD, HERE, code=code) is not None
            except (WrongCode, Throttled):
                return False

        with ThreadPoolExecutor(6) as pool:
            assert sum(pool.map(attempt, range(6))) == 1
        clock.pass_by(hours=25)


def test_a_recovery_code_works_once_and_is_nowhere_in_the_database(
    accounts: Accounts, clock: Clock, store: Store
) -> None:
    _, codes = enrolled(accounts, clock)
    assert len(set(codes)) == 10
    key, _ = session_of(accounts, code=codes[3].upper().replace("-", " "))
    assert key.user is not None
    assert accounts.recovery_codes_left(key.user) == 9
    with pytest.raises(WrongCode, match="used already"):
        accounts.sign_in("ada", PASSWORD, HERE, code=codes[3])
    assert any(line.action == "used a recovery code" for line in store.audit(limit=1000))
    with reading(store.engine) as connection:
        stored = " ".join(
            str(tuple(row))
            for table in t.metadata.sorted_tables
            for row in connection.execute(select(table))
        )
    assert not any(form in stored for code in codes for form in (code, code.replace("-", "")))


def test_guessing_codes_is_slowed_down_and_the_password_alone_resets_nothing(
    accounts: Accounts, clock: Clock
) -> None:
    app, _ = enrolled(accounts, clock)
    for _ in range(at.FREE_BY_NAME):
        with pytest.raises(WrongCode):
            accounts.sign_in("ada", PASSWORD, ELSEWHERE, code="000000")
        with pytest.raises(CodeNeeded):
            accounts.sign_in("ada", PASSWORD, ELSEWHERE)
    with pytest.raises(Throttled):
        accounts.sign_in("ada", PASSWORD, ELSEWHERE, code=app.at(clock.now))
    clock.pass_by(hours=25)
    accounts.know_browser(accounts.user("ada"), "stolen")  # whose holder also has the password
    told = []
    for _ in range(at.FREE_BY_NAME + 1):
        with pytest.raises((WrongCode, Throttled)) as refused:
            accounts.sign_in("ada", PASSWORD, HERE, code="000000", browser="stolen")
        told.append(refused.type)
    assert told == [WrongCode] * at.FREE_BY_NAME + [Throttled]
    # A stranger without the password slows down no codes, whatever name is typed.
    clock.pass_by(hours=25)
    for name in (f"code {at.sha256('ada')}", "code:ada"):
        for _ in range(at.FREE_BY_NAME + 1):
            wrong(accounts, name)
    assert accounts.sign_in("ada", PASSWORD, HERE, code=app.at(clock.now))


def test_a_reset_is_audited_and_ends_the_sessions(
    accounts: Accounts, clock: Clock, store: Store
) -> None:
    accounts.add_user("bob", PASSWORD, role="admin", author="ada")
    app, _ = enrolled(accounts, clock)
    _, secret = session_of(accounts, code=app.at(clock.now))
    with pytest.raises(StoreError, match="no second factor"):
        accounts.drop_factor("bob", author="ada", reason="x")
    accounts.drop_factor("ada", author="bob", reason="telephone lost")
    assert accounts.session(secret) is None
    assert accounts.sign_in("ada", PASSWORD, HERE) is not None
    last = [line for line in store.audit(limit=1000) if line.subject.startswith("second_factors")]
    assert (last[-1].author, last[-1].reason) == ("bob", "telephone lost")
    assert app.secret not in str([line.details for line in last])


def test_a_secret_of_another_session_or_of_nobody_is_refused(
    accounts: Accounts, clock: Clock
) -> None:
    key, secret = session_of(accounts)
    _, other = session_of(accounts)
    assert key.user is not None
    offer = offer_factor(key.user, other)
    code = pyotp.TOTP(offer.secret).at(clock.now)
    for proof in (offer.proof, "0" * 64):
        with pytest.raises(StoreError, match="begin again"):
            accounts.take_factor(key, secret, offer.secret, proof, code)
    mine = offer_factor(key.user, secret)
    with pytest.raises(WrongCode):
        accounts.take_factor(key, secret, mine.secret, mine.proof, "000000")
    assert not accounts.user("ada").second_factor


# The password again


def test_a_password_typed_again_counts_for_five_minutes_in_this_session(
    accounts: Accounts, clock: Clock
) -> None:
    key, _ = session_of(accounts)
    assert accounts.confirmed(key)  # it was typed just now
    clock.pass_by(minutes=6)
    other, _ = session_of(accounts)
    clock.pass_by(minutes=6)
    assert not accounts.confirmed(key)
    with pytest.raises(WrongPassword):
        accounts.confirm(key, OTHER, "", HERE)
    assert not accounts.confirmed(key)
    accounts.confirm(key, PASSWORD, "", HERE)
    assert accounts.confirmed(key)
    assert not accounts.confirmed(other)
    clock.pass_by(minutes=5)
    assert not accounts.confirmed(key)
    clock.pass_by(days=-30)
    assert not accounts.confirmed(other)


def test_guessing_at_an_open_page_locks_nobody_out_elsewhere(
    accounts: Accounts, clock: Clock
) -> None:
    key, _ = session_of(accounts)
    for _ in range(at.FREE_BY_NAME):
        with pytest.raises(WrongPassword):
            accounts.prove(key, "wrong password here", "", HERE)
    with pytest.raises(Throttled):
        accounts.prove(key, PASSWORD, "", HERE)
    session_of(accounts)


def test_proving_needs_the_code_too(accounts: Accounts, clock: Clock) -> None:
    app, _ = enrolled(accounts, clock)
    key, _ = session_of(accounts, code=app.at(clock.now))
    with pytest.raises(CodeNeeded):
        accounts.prove(key, PASSWORD, "", HERE)
    with pytest.raises(WrongCode, match="used already"):
        accounts.prove(key, PASSWORD, app.at(clock.now), HERE)
    clock.pass_by(seconds=30)
    accounts.prove(key, PASSWORD, app.at(clock.now), HERE)


# Sessions and links


def test_sessions_are_listed_and_ended_one_by_one(accounts: Accounts, clock: Clock) -> None:
    _, first = session_of(accounts, agent="Firefox on Linux")
    clock.pass_by(minutes=10)
    key = accounts.session(first)
    assert key is not None
    renewed = accounts.renew(first, key)
    assert renewed is not None
    _, second = session_of(accounts)
    shown = accounts.sessions("ada")
    assert [one.browser for one in shown] == ["", "Firefox on Linux"]
    assert shown[1].seen - shown[1].began == timedelta(minutes=10)
    assert shown[1].address == HERE
    accounts.end_session("ada", shown[1].public_id, author="ada")
    assert accounts.session(first) is accounts.session(renewed) is None
    assert accounts.session(second) is not None
    with pytest.raises(StoreError, match="no such session"):
        accounts.end_session("ada", shown[1].public_id, author="ada")
    accounts.add_user("bob", PASSWORD, role="examiner", author="ada")
    with pytest.raises(StoreError, match="no such session"):
        accounts.end_session("bob", shown[0].public_id, author="bob")  # another one's
    assert accounts.end_sessions("ada", author="bob", reason="test") == 1
    assert accounts.session(second) is None


@pytest.mark.parametrize(
    ("change", "lives"),
    [({"state": "disabled"}, False), ({"password": OTHER}, True), ({"role": "reviewer"}, True)],
)
def test_a_link_dies_with_its_maker(
    accounts: Accounts, store: Store, change: dict[str, str], lives: bool
) -> None:
    accounts.add_user("bob", PASSWORD, role="examiner", author="ada")
    person = store.add_person(author="bob", code="1")
    visit = store.open_visit(person.id, author="bob", zone="UTC", mode="supervised")
    exam = store.open_exam(
        visit.id, author="bob", ear="right", kind="exam", design={}, engine_version="test"
    )
    link = accounts.make_link(visit.id, [exam.id], "bob")
    assert accounts.link(link) is not None
    accounts.change_user("bob", author="ada", reason="test", **change)
    assert (accounts.link(link) is not None) == lives
    assert (accounts.link_of(visit.id) is not None) == lives
    accounts.change_user("bob", state="active", author="ada", reason="back")
    assert (accounts.link(link) is not None) == lives  # and does not come back


def test_a_single_users_session_ends_after_half_an_hour_of_nothing_and_has_a_way_back(
    store: Store, clock: Clock
) -> None:
    accounts = Accounts(store, clock)
    launch = at.sha256("token")
    secret = accounts.launch("token", launch, "me")
    assert secret is not None
    for _ in range(4):
        clock.pass_by(minutes=20)
        key = accounts.session(secret, launch)
        assert key is not None
        secret = accounts.renew(secret, key) or secret
    clock.pass_by(minutes=30)
    assert accounts.session(secret, launch) is None
    assert accounts.launch("token", launch, "me") is None
    token = accounts.offer_launch(launch, "me")
    assert accounts.launch(token, at.sha256("another program"), "me") is None
    again = accounts.launch(token, launch, "me")
    assert again is not None
    assert accounts.session(again, launch) is not None
    assert accounts.launch(token, launch, "me") is None  # works once
    late = accounts.offer_launch(launch, "me")
    clock.pass_by(minutes=11)
    assert accounts.launch(late, launch, "me") is None


# Throttling


def test_strangers_cannot_lock_out_who_signed_in_here_before(
    accounts: Accounts, clock: Clock
) -> None:
    user = accounts.user("ada")
    accounts.know_browser(user, "my browser")
    for number in range(60):  # by many addresses, mine among them
        wrong(accounts, address=HERE if number % 2 else f"203.0.113.{number}")
    with pytest.raises(Throttled):
        accounts.sign_in("ada", PASSWORD, HERE)
    with pytest.raises(Throttled):
        accounts.sign_in("ada", PASSWORD, HERE, browser="another browser")
    assert accounts.sign_in("ada", PASSWORD, HERE, browser="my browser")
    # It is known for this user alone, and guesses there are counted, too.
    accounts.add_user("bob", PASSWORD, role="examiner", author="ada")
    told = [wrong(accounts, "bob", browser="my browser") for _ in range(at.FREE_BY_NAME + 1)]
    assert told[-1] == "throttled"
    told = [wrong(accounts, browser="my browser") for _ in range(at.FREE_BY_NAME + 1)]
    assert told == ["wrong"] * at.FREE_BY_NAME + ["throttled"]


@pytest.mark.parametrize("change", [{"password": OTHER}, {"state": "disabled"}])
def test_a_new_password_forgets_the_browsers(accounts: Accounts, change: dict[str, str]) -> None:
    user = accounts.add_user("bob", PASSWORD, role="examiner", author="ada")
    accounts.know_browser(user, "stolen")
    accounts.change_user("bob", author="ada", reason="stolen", **change)
    for _ in range(at.FREE_BY_NAME):
        wrong(accounts, "bob")
    assert wrong(accounts, "bob", browser="stolen") == "throttled"


def test_an_admin_lets_in_whom_strangers_keep_waiting(
    accounts: Accounts, clock: Clock, store: Store
) -> None:
    accounts.add_user("bob", PASSWORD, role="examiner", author="ada")
    for _ in range(at.FREE_BY_NAME):
        wrong(accounts, "bob")
    given = accounts.let_in("bob", author="ada")
    assert wrong(accounts, "bob", given_pass=given) == "wrong"  # no way round the password
    with pytest.raises(Throttled):
        accounts.sign_in("bob", PASSWORD, HERE, given_pass="aaaa-bbbb-cccc-dddd")
    assert accounts.sign_in("bob", PASSWORD, HERE, given_pass=given.upper())
    for _ in range(at.FREE_BY_NAME):
        wrong(accounts, "bob")
    with pytest.raises(Throttled):
        accounts.sign_in("bob", PASSWORD, HERE, given_pass=given)  # used
    other = accounts.let_in("bob", author="ada")
    for _ in range(at.FREE_BY_NAME):
        wrong(accounts, "ada")
    with pytest.raises(Throttled):
        accounts.sign_in("ada", PASSWORD, HERE, given_pass=other)  # somebody else's
    clock.pass_by(minutes=10)
    late = accounts.let_in("bob", author="ada")
    clock.pass_by(minutes=31)
    for _ in range(at.FREE_BY_NAME + 10):
        wrong(accounts, "bob")
    assert wrong(accounts, "bob", given_pass=late) == "throttled"
    assert given not in str([(line.details, line.reason) for line in store.audit(limit=1000)])


@pytest.mark.parametrize("jump", [timedelta(days=-400), timedelta(days=400), timedelta(hours=-1)])
def test_no_wait_is_longer_than_documented_when_the_clock_jumps(
    accounts: Accounts, clock: Clock, jump: timedelta
) -> None:
    waits: list[int] = []

    def attempt() -> None:
        try:
            accounts.sign_in("ada", OTHER, HERE)
        except Throttled as throttled:
            waits.append(throttled.retry_after)
            clock.pass_by(seconds=throttled.retry_after)

    for _ in range(3):
        for _ in range(45):
            attempt()
        clock.now += jump
    assert waits
    assert max(waits) <= at.LONGEST_WAIT.total_seconds()
    clock.pass_by(seconds=at.LONGEST_WAIT.total_seconds())
    assert accounts.sign_in("ada", PASSWORD, HERE)


def test_a_clock_that_was_set_back_lets_a_session_go_on(accounts: Accounts, clock: Clock) -> None:
    _, secret = session_of(accounts)
    clock.pass_by(days=-2)
    key = accounts.session(secret)
    assert key is not None
    renewed = accounts.renew(secret, key)
    assert renewed is not None
    assert accounts.renew(secret, key) is None  # not one for each request
    assert accounts.sessions("ada")[0].expires_at == key.expires_at  # which nothing moves back


def test_a_token_that_has_expired_is_revoked_for_good(accounts: Accounts, clock: Clock) -> None:
    """It expired by a clock that was ahead: put back, it would be valid again."""
    key, token = accounts.make_token("ada", name="script", days=1, author="ada")
    clock.now += timedelta(days=40)
    assert accounts.token(token) is None
    accounts.revoke_token(key.public_id, author="ada")
    clock.now -= timedelta(days=40)
    assert accounts.token(token) is None
