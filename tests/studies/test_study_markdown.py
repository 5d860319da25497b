"""The results page: tables, what was asked for and reached, and its two files."""

import json
from pathlib import Path

from earshift import __version__
from earshift.studies.markdown import Page, Target, table, target_table


def test_a_table_has_a_head_a_rule_and_its_rows() -> None:
    assert table(("", "tones"), [("normal", "4"), ("mild", "")]) == [
        "| | tones |",
        "|---|---|",
        "| normal | 4 |",
        "| mild | |",
    ]


def test_what_was_reached_stands_beside_what_was_asked_for() -> None:
    targets = [Target("wrong at most 1 %", "0.5 %", True), Target("aim: 4.0", "5.1", False)]
    assert target_table([*targets, Target("for comparison", "7", None)]) == [
        "| asked for | reached | |",
        "|---|---|---|",
        "| wrong at most 1 % | 0.5 % | yes |",
        "| aim: 4.0 | 5.1 | **no** |",
        "| for comparison | 7 | |",
    ]
    assert target_table([Target("missed at most 2 %", "1 %", True, "osha-sts")])[2] == (
        "| osha-sts | missed at most 2 % | 1 % | yes |"
    )


def test_the_page_and_the_summary_are_written(tmp_path: Path) -> None:
    (tmp_path / "effort.txt").write_text("3 cases in 2 s on 1 local processes\n")
    page = Page("A title", "earshift study x", tmp_path, {"version": __version__})
    page.targets([Target("much", "little", False)])
    page.picture("a picture", "x.png")
    page.summary["tones"] = 4
    assert page.write() == {"version": __version__, "tones": 4}
    assert json.loads((tmp_path / "summary.json").read_text()) == page.summary
    text = (tmp_path / "results.md").read_text()
    assert text.startswith(
        "## A title\n\n"
        f"Written by `earshift study x` (earshift {__version__}), not edited by hand. "
        "3 cases in 2 s on 1 local processes.\n\n### Asked for and reached\n\n| asked for"
    )
    assert text.endswith("\n\n![a picture](x.png)\n")
