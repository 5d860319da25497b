"""Users, passwords, sessions, tokens and links, on both databases and with a clock of their own."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from argon2 import PasswordHasher, Type, extract_parameters
from sqlalchemy import select

from earshift.store import Store, StoreError
from earshift.store import tables as t
from earshift.store.accounts import Accounts, Throttled, csrf_token, sha256
from earshift.store.accounts import attempts as at
from earshift.store.accounts import sessions as a
from earshift.store.database import reading, writing

PASSWORD = "correct horse battery"
OTHER = "staple and twelve more"
HERE, ELSEWHERE = "192.0.2.7", "198.51.100.9"


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 16, 8, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def pass_by(self, **time: float) -> None:
        self.now += timedelta(**time)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def accounts(store: Store, clock: Clock) -> Accounts:
    made = Accounts(store, clock)
    made.add_user("ada", PASSWORD, role="admin", author="test")
    return made


def sign_in(accounts: Accounts, name: str = "ada", address: str = HERE) -> str:
    signed_in = accounts.sign_in(name, PASSWORD, address)
    assert signed_in is not None
    return signed_in[1]


def guess(accounts: Accounts, name: str, address: str) -> str:
    try:
        return "in" if accounts.sign_in(name, "wrong password here", address) else "wrong"
    except Throttled:
        return "throttled"


def audit_of(store: Store) -> list[tuple[str, str, str]]:
    return [(line.author, line.action, line.subject) for line in store.audit(limit=1000)]


# Users and passwords


def test_a_user_signs_in_by_any_spelling_of_the_name(accounts: Accounts) -> None:
    user, secret = accounts.sign_in(" ADA ", PASSWORD, HERE) or (None, "")
    assert user is not None
    assert (user.name, user.role) == ("ada", "admin")
    key = accounts.session(secret)
    assert key is not None
    assert key.user == user


def test_a_wrong_password_an_unknown_name_and_a_disabled_user_are_told_alike(
    accounts: Accounts, store: Store
) -> None:
    accounts.add_user("bob", PASSWORD, role="examiner", author="ada")
    accounts.change_user("bob", state="disabled", author="ada", reason="left")
    assert accounts.sign_in("ada", OTHER, HERE) is None
    assert accounts.sign_in("zoe", PASSWORD, HERE) is None
    assert accounts.sign_in("bob", PASSWORD, HERE) is None
    refused = [line for line in audit_of(store) if line[1] == "sign-in refused"]
    assert [subject for _, _, subject in refused] == ["users:1", "users:unknown", "users:2"]


def test_the_password_is_nowhere_in_the_database(accounts: Accounts, store: Store) -> None:
    secret = sign_in(accounts)
    _, token = accounts.make_token("ada", name="script", days=1, author="ada")
    with reading(store.engine) as connection:
        rows = [
            str(tuple(row))
            for table in t.metadata.sorted_tables
            for row in connection.execute(select(table))
        ]
    for hidden in (PASSWORD, secret, secret.partition(".")[0], token):
        assert not any(hidden in row for row in rows)
    assert any("$argon2id$" in row for row in rows)


def test_a_password_costs_the_work_that_rfc_9106_asks_for(full_argon2: PasswordHasher) -> None:
    made = extract_parameters(full_argon2.hash(PASSWORD))
    assert made.type is Type.ID
    assert made.time_cost >= 3
    assert made.memory_cost >= 64 * 1024  # KiB
    assert made.parallelism >= 4


@pytest.mark.parametrize(
    ("password", "words"),
    [
        ("", "12 to 256"),
        ("eleven char", "12 to 256"),
        ("x" * 257, "12 to 256"),
        ("ada-ada-ada-ada", "must not be the user's name"),
        ("AdaAdaAdaAda", "must not be the user's name"),
        ("aabbaabbaabb", "different characters"),
    ],
)
def test_a_weak_password_is_refused_without_being_repeated(
    accounts: Accounts, password: str, words: str
) -> None:
    with pytest.raises(StoreError, match=words) as refused:
        accounts.change_user("ada", password=password, author="ada", reason="test")
    assert not password or password not in str(refused.value)


def test_the_first_user_is_an_admin_and_the_last_one_stays(store: Store, clock: Clock) -> None:
    accounts = Accounts(store, clock)
    with pytest.raises(StoreError, match="first user has to be an admin"):
        accounts.add_user("bob", PASSWORD, role="examiner", author="test")
    assert not accounts.any_users()
    accounts.add_user("ada", PASSWORD, role="admin", author="test")
    accounts.add_user("bob", PASSWORD, role="examiner", author="ada")
    for change in ({"role": "examiner"}, {"state": "disabled"}):
        with pytest.raises(StoreError, match="last active admin"):
            accounts.change_user("ada", author="ada", reason="test", **change)
    assert accounts.user("ada").role == "admin"
    assert accounts.any_admin()
    accounts.change_user("bob", role="admin", author="ada", reason="follows")
    accounts.change_user("ada", state="disabled", author="bob", reason="left")
    assert accounts.any_admin()


@pytest.mark.parametrize("name", ["", "a", "a b", "a/b", "x" * 65, "nobody", "<script>"])
def test_a_name_that_cannot_be_is_refused(accounts: Accounts, name: str) -> None:
    with pytest.raises(StoreError):
        accounts.add_user(name, PASSWORD, role="examiner", author="ada")


def test_a_name_is_taken_once_in_whatever_case(accounts: Accounts) -> None:
    with pytest.raises(StoreError, match="already"):
        accounts.add_user("ADA", PASSWORD, role="examiner", author="ada")


def test_every_change_of_a_user_has_its_audit_row(accounts: Accounts, store: Store) -> None:
    accounts.change_user("ada", password=OTHER, author="ada", reason="forgotten")
    lines = [line for line in store.audit(limit=1000) if line.subject.startswith("user_states:")]
    assert [line.reason for line in lines] == ["new user", "forgotten"]
    assert all("argon2" not in str(line.details) for line in lines)


# Throttling


def test_guessing_one_name_is_slowed_down_from_wherever_it_comes(
    accounts: Accounts, clock: Clock
) -> None:
    free = [guess(accounts, "ada", f"203.0.113.{n}") for n in range(at.FREE_BY_NAME)]
    assert set(free) == {"wrong"}
    with pytest.raises(Throttled) as throttled:
        accounts.sign_in("ada", PASSWORD, ELSEWHERE)
    assert throttled.value.retry_after == 1
    clock.pass_by(seconds=1.5)
    assert guess(accounts, "ada", HERE) == "wrong"
    with pytest.raises(Throttled) as throttled:
        accounts.sign_in("ada", PASSWORD, ELSEWHERE)
    assert throttled.value.retry_after == 2


def test_the_wait_doubles_to_a_limit_and_the_right_password_ends_it(
    accounts: Accounts, clock: Clock
) -> None:
    waits = []
    for _ in range(at.FREE_BY_NAME + 14):
        try:
            assert accounts.sign_in("ada", OTHER, HERE) is None
        except Throttled as error:
            waits.append(error.retry_after)
            clock.pass_by(seconds=error.retry_after)
            assert accounts.sign_in("ada", OTHER, HERE) is None
    longest = int(at.LONGEST_WAIT.total_seconds())
    assert waits[:5] == [1, 2, 4, 8, 16]
    assert max(waits) == waits[-1] == longest
    clock.pass_by(seconds=longest)
    sign_in(accounts)
    assert guess(accounts, "ada", HERE) == "wrong"
    assert guess(accounts, "ada", HERE) == "wrong"  # free again


def test_an_address_that_tries_many_names_is_slowed_down(accounts: Accounts) -> None:
    told = [guess(accounts, f"user{n}", HERE) for n in range(at.FREE_BY_ADDRESS + 1)]
    assert told == ["wrong"] * at.FREE_BY_ADDRESS + ["throttled"]
    assert sign_in(accounts, address=ELSEWHERE)
    assert guess(accounts, "ada", "2001:db8::1") == "wrong"


def test_a_network_of_the_sixth_version_is_one_caller(accounts: Accounts) -> None:
    told = [guess(accounts, f"user{n}", f"2001:db8::{n + 1:x}") for n in range(40)]
    assert told[-1] == "throttled"
    assert guess(accounts, "user99", "2001:db8:1::1") == "wrong"


def test_a_clinic_behind_one_address_signs_in_as_often_as_it_likes(accounts: Accounts) -> None:
    for _ in range(at.FREE_BY_ADDRESS + 5):
        sign_in(accounts)


def test_guesses_at_once_are_not_free(accounts: Accounts) -> None:
    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(lambda _: guess(accounts, "ada", HERE), range(16)))
    assert told.count("wrong") == at.FREE_BY_NAME


def test_a_throttled_guess_never_reaches_argon2(
    accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(at.FREE_BY_NAME):
        guess(accounts, "ada", HERE)

    def reached(*_: object) -> bool:
        raise AssertionError("argon2 was asked")

    monkeypatch.setattr(accounts, "_matches", reached)
    assert guess(accounts, "ada", HERE) == "throttled"


def test_a_user_who_does_not_exist_is_checked_against_a_hash_as_well(
    accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = accounts._matches

    def noted(password_hash: str, password: str) -> bool:
        asked.append(password_hash)
        return real(password_hash, password)

    monkeypatch.setattr(accounts, "_matches", noted)
    accounts.sign_in("zoe", PASSWORD, HERE)
    accounts.sign_in("ada", OTHER, HERE)
    assert len(asked) == 2
    assert all(each.startswith("$argon2id$") for each in asked)
    assert asked[0].split("$")[:4] == asked[1].split("$")[:4]  # the same work


# Sessions


def test_a_session_ends_after_half_an_hour_of_nothing(accounts: Accounts, clock: Clock) -> None:
    secret = sign_in(accounts)
    clock.pass_by(minutes=29)
    assert accounts.session(secret) is not None
    clock.pass_by(minutes=1)
    assert accounts.session(secret) is None


def test_a_session_in_use_goes_on_and_ends_after_twelve_hours(
    accounts: Accounts, clock: Clock
) -> None:
    secret = first = sign_in(accounts)
    began = clock.now
    while (key := accounts.session(secret)) is not None:
        secret = accounts.renew(secret, key) or secret
        assert csrf_token(secret) == csrf_token(first)  # an open page goes on working
        clock.pass_by(minutes=4)
    assert clock.now - began == a.SESSION_LONGEST
    assert secret != first


def test_a_renewed_session_takes_requests_with_the_old_secret_for_a_while(
    accounts: Accounts, clock: Clock
) -> None:
    old = sign_in(accounts)
    clock.pass_by(minutes=6)
    key = accounts.session(old)
    assert key is not None
    new = accounts.renew(old, key)
    assert new is not None
    assert accounts.renew(old, key) is None  # not one for each request on its way
    assert accounts.session(old) is not None
    clock.pass_by(minutes=25)
    assert accounts.session(old) is None
    assert accounts.session(new) is not None


def test_a_secret_ends_when_the_one_after_it_is_followed(accounts: Accounts, clock: Clock) -> None:
    secrets = [sign_in(accounts)]
    for _ in range(3):
        clock.pass_by(minutes=6)
        key = accounts.session(secrets[-1])
        assert key is not None
        secrets.append(accounts.renew(secrets[-1], key) or "")
    # So that few are left to be ended when a password is changed after years.
    assert [accounts.session(one) is not None for one in secrets] == [False, False, True, True]


def test_what_was_ended_while_the_clock_was_ahead_stays_ended(
    accounts: Accounts, clock: Clock
) -> None:
    accounts.add_user("bob", PASSWORD, role="examiner", author="ada")
    secret = sign_in(accounts, "bob")
    _, token = accounts.make_token("bob", name="script", days=30, author="bob")
    clock.pass_by(days=40)
    accounts.change_user("bob", password=OTHER, author="ada", reason="test")
    clock.pass_by(days=-40)
    assert accounts.session(secret) is None
    assert accounts.token(token) is None


def test_a_session_renewed_while_the_clock_was_back_goes_on(
    accounts: Accounts, clock: Clock
) -> None:
    secret = sign_in(accounts)
    clock.pass_by(minutes=6)
    clock.pass_by(hours=-1)
    key = accounts.session(secret)
    assert key is not None
    renewed = accounts.renew(secret, key)
    assert renewed is not None
    clock.pass_by(hours=1)
    assert accounts.session(renewed) is not None


def test_signing_out_ends_the_session_with_all_its_secrets(
    accounts: Accounts, clock: Clock, store: Store
) -> None:
    old, other = sign_in(accounts), sign_in(accounts)
    clock.pass_by(minutes=6)
    key = accounts.session(old)
    assert key is not None
    new = accounts.renew(old, key)
    assert new is not None
    accounts.sign_out(key)
    assert accounts.session(old) is None
    assert accounts.session(new) is None
    assert accounts.session(other) is not None
    assert accounts.renew(old, key) is None  # a request on its way does not bring it back
    assert ("ada", "sign out", f"keys:{key.id}") in audit_of(store)


@pytest.mark.parametrize("change", [{"state": "disabled"}, {"password": OTHER}])
def test_a_disabled_user_and_a_new_password_end_sessions_and_tokens(
    accounts: Accounts, change: dict[str, str]
) -> None:
    accounts.add_user("bob", PASSWORD, role="examiner", author="ada")
    secret, own = sign_in(accounts, "bob"), sign_in(accounts)
    _, token = accounts.make_token("bob", name="script", days=1, author="bob")
    accounts.change_user("bob", author="ada", reason="test", **change)
    assert accounts.session(secret) is None
    assert accounts.token(token) is None
    assert accounts.session(own) is not None
    if "state" in change:
        accounts.change_user("bob", state="active", author="ada", reason="back")
        assert accounts.session(secret) is None
        assert accounts.token(token) is None


def test_another_role_counts_at_once(accounts: Accounts) -> None:
    accounts.add_user("bob", PASSWORD, role="admin", author="ada")
    secret = sign_in(accounts, "bob")
    accounts.change_user("bob", role="examiner", author="ada", reason="test")
    key = accounts.session(secret)
    assert key is not None
    assert key.role == "examiner"


def test_a_launch_token_works_once_and_only_without_users(store: Store, clock: Clock) -> None:
    accounts = Accounts(store, clock)
    launch = sha256("token")
    assert accounts.launch("another", launch, "me") is None
    secret = accounts.launch("token", launch, "me")
    assert secret is not None
    assert accounts.launch("token", launch, "me") is None
    key = accounts.session(secret, launch)
    assert key is not None
    assert key.role == "admin"
    assert accounts.session(secret) is None
    assert accounts.session(secret, sha256("of the next start")) is None
    accounts.add_user("ada", PASSWORD, role="admin", author="test")
    assert accounts.session(secret, launch) is None
    assert accounts.launch("next", sha256("next"), "me") is None


# Tokens


def test_a_token_ends_by_the_clock_and_when_revoked(accounts: Accounts, clock: Clock) -> None:
    first, secret = accounts.make_token("ada", name="script", days=2, author="ada")
    second, other = accounts.make_token("ada", name="other", days=9, author="ada")
    assert [key.public_id for key in accounts.tokens("ada")] == [first.public_id, second.public_id]
    clock.pass_by(days=2)
    assert accounts.token(secret) is None
    assert accounts.token(other) == second
    with pytest.raises(StoreError, match="no such token"):
        accounts.revoke_token(second.public_id, author="bob", user_name="bob")
    accounts.revoke_token(second.public_id, author="ada")
    assert accounts.token(other) is None
    with pytest.raises(StoreError, match="no such token"):
        accounts.revoke_token(second.public_id, author="ada")


def test_a_token_may_never_do_more_than_its_user(accounts: Accounts) -> None:
    accounts.add_user("bob", PASSWORD, role="admin", author="ada")
    _, full = accounts.make_token("bob", name="all", days=1, author="bob")
    _, less = accounts.make_token("bob", name="some", role="examiner", days=1, author="bob")
    assert (accounts.token(full).role, accounts.token(less).role) == ("admin", "examiner")  # type: ignore[union-attr]
    accounts.change_user("bob", role="examiner", author="ada", reason="test")
    assert accounts.token(full).role == "examiner"  # type: ignore[union-attr]
    with pytest.raises(StoreError, match="cannot be admin"):
        accounts.make_token("bob", name="more", role="admin", days=1, author="bob")


@pytest.mark.parametrize("days", [0, 1e-9, -1, 367, float("nan"), float("inf")])
def test_a_token_has_an_end(accounts: Accounts, days: float) -> None:
    with pytest.raises(StoreError, match=r"0\.04 to 366 days"):
        accounts.make_token("ada", name="script", days=days, author="ada")


def test_a_key_of_one_kind_is_none_of_another(accounts: Accounts, visit: tuple[int, int]) -> None:
    session, link = sign_in(accounts), accounts.make_link(visit[0], [visit[1]], "ada")
    _, token = accounts.make_token("ada", name="script", days=1, author="ada")
    assert accounts.token(session) is accounts.token(link) is None
    assert accounts.session(token) is accounts.session(link) is None
    assert accounts.link(token) is accounts.link(session) is None


# Links


@pytest.fixture
def visit(store: Store) -> tuple[int, int]:
    """A visit and its exam."""
    person = store.add_person(author="ada", code="4711")
    opened = store.open_visit(person.id, author="ada", zone="UTC", mode="supervised")
    exam = store.open_exam(
        opened.id, author="ada", ear="right", kind="exam", design={}, engine_version="test"
    )
    return opened.id, exam.id


def test_a_link_is_for_its_exams_and_ends_within_two_hours(
    accounts: Accounts, clock: Clock, visit: tuple[int, int]
) -> None:
    visit_id, exam_id = visit
    token = accounts.make_link(visit_id, [exam_id], "ada")
    link = accounts.link(token)
    assert link is not None
    assert (link.visit_id, link.exam_ids) == (visit_id, (exam_id,))
    assert accounts.link_of(visit_id) == link
    clock.pass_by(hours=2)
    assert accounts.link(token) is None
    assert accounts.link_of(visit_id) is None
    for hours in (0.0, 2.01, float("nan")):
        with pytest.raises(StoreError, match="at most 2 hours"):
            accounts.make_link(visit_id, [exam_id], "ada", hours=hours)
    for exams in ([], [exam_id + 1]):
        with pytest.raises(StoreError, match="all of its visit"):
            accounts.make_link(visit_id, exams, "ada")


def test_a_new_link_ends_the_one_before_and_all_can_be_revoked(
    accounts: Accounts, visit: tuple[int, int]
) -> None:
    visit_id, exam_id = visit
    first = accounts.make_link(visit_id, [exam_id], "ada")
    second = accounts.make_link(visit_id, [exam_id], "ada")
    assert accounts.link(first) is None
    assert accounts.link(second) is not None
    accounts.end_links(visit_id, "ada")
    accounts.end_links(visit_id, "ada")
    assert accounts.link(second) is None


def test_a_release_lasts_until_it_is_taken_back(
    accounts: Accounts, clock: Clock, visit: tuple[int, int]
) -> None:
    visit_id, _ = visit
    assert not accounts.released(visit_id)
    accounts.release(visit_id, "ada")
    accounts.release(visit_id, "ada")
    clock.pass_by(days=30)
    assert accounts.released(visit_id)
    accounts.end_links(visit_id, "ada")
    assert accounts.released(visit_id)
    accounts.release(visit_id, "ada", released=False)
    assert not accounts.released(visit_id)


def test_the_database_refuses_to_change_what_was_written(accounts: Accounts, store: Store) -> None:
    sign_in(accounts)
    for table in (t.users, t.user_states, t.keys, t.login_attempts):
        with pytest.raises(StoreError), writing(store.engine) as connection:
            connection.execute(table.delete())
