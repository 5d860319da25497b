"""Review, letters, follow-ups and room noise on the command line."""

import json
from pathlib import Path

import pyotp
import pytest
from test_clinic_cli import Run, db, run

from earshift.store import Store
from earshift.store.accounts import Accounts
from earshift.store.accounts.factors import offer_factor

__all__ = ["db", "run"]
HEAD = "person,date,ear,frequency_hz,threshold_db_hl\n"


@pytest.fixture
def visit(run: Run, tmp_path: Path) -> int:
    """The visit of an audiogram that is 20 dB worse than the baseline."""
    rows = [
        f"A1,{day},right,{hertz},{level}\n"
        for day, level in (("2024-03-01", 10), ("2025-03-01", 30))
        for hertz in (500, 1000, 2000, 3000, 4000, 6000)
    ]
    file = tmp_path / "two.csv"
    file.write_text(HEAD + "".join(rows), encoding="utf-8")
    run("import", file)
    return 2


def test_a_visit_is_signed_and_the_letter_written(run: Run, visit: int, tmp_path: Path) -> None:
    shown = run("review", "show", visit)
    assert "20 dB worse than at the baseline of 2024-03-01" in shown
    assert "Nobody has signed this visit." in shown
    assert "follows from the signature" in run(
        "review", "letter", visit, "--out", tmp_path / "l.pdf", code=2
    )
    said = run("review", "work-related", 2, "yes", "--name", "Dr K", "--reason", "92 dBA")
    assert said == "Exam 2, related to work: yes\n"
    signed = json.loads(run("review", "sign", visit, "--name", "Dr K", "--json"))
    assert (signed["name"], signed["meaning"], signed["author"]) == ("Dr K", "reviewed", "mh")
    assert "signed by another meanwhile" in run("review", "sign", visit, "--name", "Dr L", code=2)
    run("review", "sign", visit, "--name", "Dr K", "--amends", 1, "--reason", "spelling")
    for name in ("letter.pdf", "letter.html"):
        assert str(tmp_path / name) in run("review", "letter", visit, "--out", tmp_path / name)
    assert "Dr K" in (tmp_path / "letter.html").read_text(encoding="utf-8")
    assert ".html or .pdf" in run("review", "letter", visit, "--out", tmp_path / "l.doc", code=2)
    run("report", visit, "--out", tmp_path / "report.html")
    assert signed["sha256"] not in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "This amends the signature of Dr K" in (tmp_path / "report.html").read_text("utf-8")
    assert "letter: tell the person" in run("worklist", "--why", "letter")
    assert run("review", "follow-up", visit, "letter", "--by", "Ms W").startswith("told in writing")
    assert run("worklist", "--why", "letter") == "Nothing to do\n"
    shown = run("review", "show", visit)
    assert "Told in writing on" in shown
    assert "Recordable on the OSHA 300 log (29 CFR 1904.10): yes" in shown
    assert json.loads(run("programme", "--json"))["everybody"]["letters"] == 1
    assert (
        run("programme", "--csv").splitlines()[0].endswith("letters,protectors,trainings,referrals")
    )


def test_bad_input_gets_a_sentence(run: Run, visit: int) -> None:
    for arguments, said in (
        (("review", "show", 99), "there is no visit 99"),
        (("review", "sign", visit, "--name", " "), "the printed name must not be empty"),
        (("review", "sign", visit, "--name", "x", "--meaning", "seen"), "must be one of reviewed"),
        (("review", "follow-up", visit, "tea", "--by", "x"), "a follow-up must be one of"),
        (("review", "follow-up", visit, "training", "--by", "x", "--on", "1999-01-01"), "between"),
        (("review", "work-related", 2, "maybe", "--name", "x", "--reason", "x"), "yes, no"),
        (("review", "work-related", 1, "yes", "--name", "x", "--reason", "x"), "no full audiogram"),
        (("room", "add", "500"), "typed as HZ=DB"),
        (("room", "add", "600=30"), "an octave band is one of"),
        (("room", "add", "500=loud"), "must be a number of dB SPL"),
    ):
        assert said in run(*arguments, code=2)


def test_where_there_are_users_a_reviewer_signs_and_closes(run: Run, visit: int, db: Path) -> None:
    with Store.open(db) as store:
        accounts = Accounts(store)
        for name, role in (("ada", "admin"), ("rea", "reviewer"), ("mh", "examiner")):
            accounts.add_user(name, "a long enough password", role=role, author="ada")
    for command in (
        ("review", "sign", visit, "--name", "Dr K"),
        ("review", "work-related", 2, "yes", "--name", "x", "--reason", "x"),
        ("verdict", "close", 2, "--reason", "wax"),
    ):
        assert "only a reviewer can do this" in run(*command, code=2)
        if command[:2] != ("review", "sign"):
            run(*command, "--author", "rea")


def test_a_signature_needs_the_password_of_its_account(run: Run, visit: int, db: Path) -> None:
    password = "a long enough password"
    with Store.open(db) as store:
        accounts = Accounts(store)
        for name, role in (("ada", "admin"), ("rea", "reviewer")):
            accounts.add_user(name, password, role=role, author="ada", temporary=False)
    signing = ("review", "sign", visit, "--name", "Dr K", "--author", "rea")
    assert "must be typed at a terminal" in run(*signing, code=2)
    for wrong in ("", "\n", "not the password\n"):
        assert "password" in run(*signing, "--password-stdin", typed=wrong, code=2)
    with Store.open(db) as store:
        assert store.signatures(visit) == []
    run(*signing, "--password-stdin", typed=f"{password}\n")
    with Store.open(db) as store:
        (one,) = store.signatures(visit)
        assert (one.author, one.name) == ("rea", "Dr K")


def test_nobody_signs_with_a_password_that_an_admin_chose(run: Run, visit: int, db: Path) -> None:
    password = "a long enough password"
    with Store.open(db) as store:
        accounts = Accounts(store)
        accounts.add_user("ada", password, role="admin", author="ada", temporary=False)
        accounts.add_user("rea", password, role="reviewer", author="ada")
    signing = ("review", "sign", visit, "--name", "Dr K", "--author", "rea", "--password-stdin")
    said = run(*signing, typed=f"{password}\n", code=2)
    assert "somebody else chose this password" in said
    assert "earshift user password rea --own" in said
    with Store.open(db) as store:
        assert store.signatures(visit) == []


def test_a_signature_needs_the_code_where_there_is_a_second_factor(
    run: Run, visit: int, db: Path
) -> None:
    password = "a long enough password"
    with Store.open(db) as store:
        accounts = Accounts(store)
        for name, role in (("ada", "admin"), ("rea", "reviewer")):
            accounts.add_user(name, password, role=role, author="ada", temporary=False)
        signed_in = accounts.sign_in("rea", password, "127.0.0.1")
        assert signed_in is not None
        key = accounts.session(signed_in[1])
        assert key is not None
        assert key.user is not None
        offer = offer_factor(key.user, signed_in[1])
        proof = pyotp.TOTP(offer.secret).now()
        codes = accounts.take_factor(key, signed_in[1], offer.secret, offer.proof, proof)
    signing = ("review", "sign", visit, "--name", "Dr K", "--author", "rea", "--password-stdin")
    assert "code" in run(*signing, typed=f"{password}\n", code=2)
    assert "code" in run(*signing, typed=f"{password}\n000000\n", code=2)
    run(*signing, typed=f"{password}\n{codes[0]}\n")
    with Store.open(db) as store:
        assert len(store.signatures(visit)) == 1


def test_room_noise_is_kept_and_listed(run: Run) -> None:
    assert run("room", "list") == "Nothing was measured yet\n"
    run("device", "add", "--name", "booth", "--transducer", "insert")
    said = run("room", "add", "500=51", "1000=30.5", "--device", 1, "--room", "booth 1")
    assert said.startswith("TOO LOUD for insert earphones: 500 Hz 51 dB (limit 50)")
    said = run("room", "add", "500=21", "1000=20", "2000=20", "4000=20", "8000=20")
    assert said.count("Within the limits") == 2
    assert "1000 Hz 30.5 dB" in run("room", "list")
    assert len(json.loads(run("room", "list", "--json"))) == 2
