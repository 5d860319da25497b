"""The site's name and address: settled with a reason, and at the head of every report."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from earshift.clinic.site import change_setting, letterhead, site_settings
from earshift.engine.refusal import Refusal
from earshift.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "site.db") as opened:
        yield opened


def test_a_site_without_a_name_has_an_empty_head(store: Store) -> None:
    assert (letterhead(store).name, letterhead(store).address) == ("", "")


def test_name_and_address_are_settled_with_a_reason(store: Store) -> None:
    settled = change_setting(
        store, "site_name", "  Example \t Works ", author="ada", reason="as on our letters"
    )
    assert (settled.value, settled.author) == ("Example Works", "ada")
    change_setting(store, "site_address", "Müllweg 3", author="ada", reason="moved")
    head = letterhead(store)
    assert (head.name, head.address) == ("Example Works", "Müllweg 3")
    change_setting(store, "site_address", "", author="ada", reason="moved out")
    assert letterhead(store).address == ""


@pytest.mark.parametrize("value", ["x" * 121, "bell\x07", 7, True])
def test_what_is_no_name_is_refused(store: Store, value: Any) -> None:
    with pytest.raises(Refusal, match="site_name is a text of up to 120 letters"):
        change_setting(store, "site_name", value, author="ada", reason="because")
    assert site_settings(store)["site_name"].author is None


def test_the_command_line_settles_it_and_writes_it_on_the_report(tmp_path: Path) -> None:
    from earshift.cli import app

    db, out = str(tmp_path / "site.db"), tmp_path / "visit.html"

    def run(*words: str) -> str:
        done = CliRunner().invoke(app, [*words, "--db", db])
        assert done.exit_code == 0, done.output
        return done.output

    with Store.open(db):
        pass  # an empty one gets its tables
    assert "site_name = not given" in run("site", "show")
    settled = run("site", "set", "site_name", "Example Works", "--reason", "letters")
    assert "site_name = Example Works" in settled
    with Store.open(db) as store:
        person = store.add_person(author="ada", name="Ada King")
        visit = store.open_visit(person.id, zone="UTC", mode="supervised", author="ada")
    run("report", str(visit.id), "--out", str(out))
    assert "<b>Example Works</b>" in out.read_text(encoding="utf-8")
