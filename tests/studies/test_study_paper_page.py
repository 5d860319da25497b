"""What a study leaves for readers, against numbers recomputed from its rows by hand."""

import csv
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image

import earshift
from earshift.engine.protocol import PROTOCOLS
from earshift.studies import paper, paper_page
from earshift.studies.case import Ear

BEST = PROTOCOLS["best"]
LIMIT = math.log(100.0)
MAX_TONES = 12
NAMES = ("normal", "slight", "profound")
REPS = 4
Key = tuple[str, str, str, str, int]


def walk(rng: np.random.Generator, old: str, new: str, strategy: str, tones: int) -> list[float]:
    """Evidence that mostly goes the right way, at different speeds, and sometimes never arrives."""
    speed = {"differential": 0.9, "bald": 0.5, "uncertainty": 0.6, "random": 0.2}[strategy]
    drift = -0.6 * speed if old == new else speed
    return list(np.cumsum(rng.normal(drift, 2.0, tones)))


def synthetic(
    labels: Iterable[str], names: Iterable[str], strategies: Iterable[str], seed: int = 0
) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    rows = [
        (label, strategy, old, new, rep, tone, 1000.0, 20.0, True, x, 1 / (1 + math.exp(-x)))
        for label in labels
        for rep in range(REPS)
        for old in names
        for new in names
        for strategy in strategies
        for tone, x in enumerate(
            walk(rng, old, new, strategy, MAX_TONES if strategy == "differential" else 50), start=1
        )
    ]
    return pl.DataFrame(rows, schema=list(paper.PaperCase.columns), orient="row")


def summed_up(frame: pl.DataFrame, max_tones: int) -> dict[Key, tuple[int, str, int]]:
    """Per screen: tones to the right model, the two-sided outcome, and tones to that."""
    paths: dict[Key, list[float]] = {}
    for row in frame.sort("tone").iter_rows(named=True):
        key = (row["protocol"], row["strategy"], row["old"], row["new"], row["rep"])
        if row["tone"] <= max_tones:
            paths.setdefault(key, []).append(row["log_bf"])
    out = {}
    for key, path in paths.items():
        sign = -1 if key[2] == key[3] else 1
        right, outcome, end = max_tones + 1, "undecided", max_tones
        for tone, log_bf in enumerate(path, start=1):
            if outcome == "undecided" and abs(log_bf) >= LIMIT:
                outcome, end = ("right" if sign * log_bf > 0 else "wrong"), tone
            if right > max_tones and sign * log_bf >= LIMIT:
                right = tone
        out[key] = (right, outcome, end)
    return out


def step(key: Key) -> int:
    order = ("normal", "slight", "mild", "moderate", "moderately-severe", "severe", "profound")
    return abs(order.index(key[2].split(":")[0]) - order.index(key[3].split(":")[0]))


def table_rows(text: str) -> dict[str, list[str]]:
    """All rows of all tables in a Markdown text, by their first entry."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {entries[0].strip("* "): [e.strip() for e in entries[1:]] for entries in lines}


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def assert_picture(path: Path) -> None:
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    with Image.open(path) as image:
        assert image.convert("RGB").getcolors(maxcolors=2) is None


# The paper's own numbers -----------------------------------------------------------------------


def test_the_papers_table() -> None:
    table = paper_page.paper_table()
    assert len(table) == 48
    assert ("profound", "profound") not in table
    assert np.mean([mean for mean, _ in table.values()]) == pytest.approx(5.18, abs=0.01)
    assert table["normal", "normal"] == (7.2, 1.6)
    assert table["slight", "mild"] == (9.9, 1.8)
    assert table["moderately-severe", "moderate"] == (16, 8.0)
    assert table["profound", "severe"] == (4.2, 0.63)


# The paper's experiment ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    return synthetic(["best"], NAMES, paper.STRATEGIES)


@pytest.fixture(scope="module")
def written(frame: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    out = tmp_path_factory.mktemp("results")
    summary = paper_page.write_paper_results(frame, BEST, MAX_TONES, "earshift study paper", out)
    return out, summary


@pytest.fixture(scope="module")
def screens(frame: pl.DataFrame) -> dict[Key, tuple[int, str, int]]:
    return summed_up(frame, MAX_TONES)


def bads(screens: dict[Key, tuple[int, str, int]], old: str, new: str) -> list[Any]:
    return [v for k, v in screens.items() if k[1:4] == ("differential", old, new)]


def test_the_made_up_rows_have_all_that_can_happen(
    screens: dict[Key, tuple[int, str, int]],
) -> None:
    outcomes = [outcome for key, (_, outcome, _) in screens.items() if key[1] == "differential"]
    assert set(outcomes) == {"right", "wrong", "undecided"}
    assert any(right > MAX_TONES for right, _, _ in screens.values())


def test_all_files_are_there(written: tuple[Path, Any]) -> None:
    out, _ = written
    assert {path.name for path in out.iterdir()} == {
        "results.md", "table.csv", "summary.json", "strategies.png", "grid.png", "truths.png"
    }  # fmt: skip
    text = (out / "results.md").read_text()
    for path in out.glob("*.png"):
        assert_picture(path)
        assert f"({path.name})" in text
    assert "`earshift study paper`" in text
    assert f"earshift {earshift.__version__}" in text


def test_every_cell_has_its_mean_and_the_papers(
    written: tuple[Path, Any], screens: dict[Key, tuple[int, str, int]]
) -> None:
    table = table_rows((written[0] / "results.md").read_text())
    assert table["old \\ new"] == list(NAMES)
    paper = {"normal": "[7.2 ± 1.6]", "slight": "[5.8 ± 2.9]", "profound": "[3.5 ± 0.53]"}
    starred = 0
    for old in NAMES:
        for new, entry in zip(NAMES, table[old], strict=True):
            tones = [right for right, _, _ in bads(screens, old, new)]
            assert len(tones) == REPS
            star = "*" if max(tones) > MAX_TONES else ""
            ours = f"{np.mean(tones):.1f} ± {np.std(tones, ddof=1):.1f}{star} ["
            assert entry.startswith(ours)
            starred += len(star)
            if old == "normal":
                assert entry.endswith(paper[new])
    assert 0 < starred < len(NAMES) ** 2
    assert table["profound"][-1].endswith("[not given]")


def test_the_groups_are_means_over_cells(
    written: tuple[Path, Any], screens: dict[Key, tuple[int, str, int]]
) -> None:
    out, summary = written
    text = (out / "results.md").read_text()
    table = table_rows(text)
    mine = {
        key: value
        for key, value in screens.items()
        if key[1] == "differential" and key[2:4] != ("profound", "profound")
    }
    (slower,) = [line for line in text.splitlines() if line.startswith("Slower than the paper:")]
    kinds = {"same": {0}, "adjacent": {1}, "far": {2, 3, 4, 5, 6}, "all": set(range(7))}
    for kind, steps in kinds.items():
        group = {key: value for key, value in mine.items() if step(key) in steps}
        cells = sorted({key[2:4] for key in group})
        means = [np.mean([group[k][0] for k in group if k[2:4] == cell]) for cell in cells]
        theirs = np.mean([paper_page.paper_table()[cell][0] for cell in cells])
        outcomes = [outcome for _, outcome, _ in group.values()]
        shares = [outcomes.count(word) / len(group) for word in ("right", "wrong", "undecided")]
        never = sum(right > MAX_TONES for right, _, _ in group.values())
        two_sided = np.mean([end for _, _, end in group.values()])
        assert table[f"{kind} ({len(cells)} cells; paper {theirs:.2f})"] == [
            str(len(group)),
            f"{np.mean(means):.2f}",
            str(never),
            *map(percent, shares),
            f"{two_sided:.2f}",
        ]
        numbers = summary["groups"][kind]
        assert numbers["mean_of_cells"] == pytest.approx(np.mean(means))
        assert numbers["paper"] == pytest.approx(theirs)
        assert [numbers[w] for w in ("right", "wrong", "undecided")] == pytest.approx(shares)
        assert (f"{kind} ({np.mean(means):.2f} against {theirs:.2f})" in slower) == (
            np.mean(means) > theirs
        )
    assert set(summary["groups"]) == set(kinds)


def test_baselines_are_compared_in_pairs(
    written: tuple[Path, Any], screens: dict[Key, tuple[int, str, int]]
) -> None:
    out, summary = written
    table = table_rows((out / "results.md").read_text())
    assert table["where"] == ["BALD on the new exam", "uncertainty", "random"]
    places = {
        "normal to normal": [("normal", "normal")],
        "normal to slight": [("normal", "slight")],
        "all cells": [(o, n) for o in NAMES for n in NAMES if (o, n) != ("profound", "profound")],
    }
    assert set(summary["against_baselines"]) == set(places)
    for place, cells in places.items():
        for entry, strategy in zip(table[place], paper.BASELINES, strict=True):
            gaps = [
                screens["best", "differential", *cell, rep][0]
                - screens["best", strategy, *cell, rep][0]
                for cell in cells
                for rep in range(REPS)
            ]
            mean, low, high = summary["against_baselines"][place][strategy]
            assert mean == pytest.approx(np.mean(gaps))
            assert min(gaps) <= low <= mean <= high <= max(gaps)
            note = " (not ahead)" if high >= 0 else ""
            assert entry == f"{np.mean(gaps):+.1f} [{low:+.1f}, {high:+.1f}]{note}"


def test_the_csv_has_every_cell(
    written: tuple[Path, Any], screens: dict[Key, tuple[int, str, int]]
) -> None:
    with (written[0] / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["old"], row["new"]) for row in rows] == [(o, n) for o in NAMES for n in NAMES]
    for row in rows:
        group = bads(screens, row["old"], row["new"])
        tones = [right for right, _, _ in group]
        outcomes = [outcome for _, outcome, _ in group]
        wanted = {
            "runs": REPS,
            "mean_tones": np.mean(tones),
            "sd_tones": np.std(tones, ddof=1),
            "never": sum(t > MAX_TONES for t in tones),
            **{w: outcomes.count(w) / REPS for w in ("right", "wrong", "undecided")},
            "mean_tones_two_sided": np.mean([end for _, _, end in group]),
        }
        assert {k: float(v) for k, v in row.items() if k in wanted} == pytest.approx(
            wanted, abs=1e-4
        )


def test_the_summary_is_what_was_returned(written: tuple[Path, Any]) -> None:
    out, summary = written
    text = (out / "summary.json").read_text()
    assert json.loads(text) == json.loads(json.dumps(summary, allow_nan=False))
    assert summary["protocol"] == BEST.to_dict()
    assert summary["version"] == earshift.__version__


def test_the_limit_is_the_protocols(tmp_path: Path) -> None:
    frame = synthetic(["best"], ["normal", "mild"], ["differential"])
    easy = earshift.Protocol(name="easy", bayes_factor=2.0)
    summary = paper_page.write_paper_results(frame, easy, MAX_TONES, "x", tmp_path)
    first = frame.filter(
        (pl.col("log_bf") * pl.when(pl.col("old") == pl.col("new")).then(-1).otherwise(1))
        >= math.log(2.0)
    )
    tones = first.group_by("old", "new", "rep").agg(pl.col("tone").min())["tone"].to_list()
    tones += [MAX_TONES + 1] * (4 * REPS - len(tones))
    assert summary["groups"]["all"]["mean_tones"] == pytest.approx(np.mean(tones))


def test_a_study_of_one_baseline_has_no_table_of_bads(tmp_path: Path) -> None:
    frame = synthetic(["best"], ["normal"], ["random"])
    summary = paper_page.write_paper_results(frame, BEST, MAX_TONES, "x", tmp_path)
    assert "groups" not in summary
    assert {path.name for path in tmp_path.iterdir()} == {
        "results.md", "summary.json", "strategies.png", "truths.png"
    }  # fmt: skip
    assert "old \\ new" not in (tmp_path / "results.md").read_text()


# Curves ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("old", "new"), [("normal", "slight"), ("slight", "slight")])
def test_curves_are_numpys_quartiles(frame: pl.DataFrame, old: str, new: str) -> None:
    tones = 9
    shown = paper_page.curve(frame, "bald", old, new, tones)
    p = np.array(
        [
            frame.filter(
                pl.col("strategy") == "bald",
                pl.col("old") == old,
                pl.col("new") == new,
                pl.col("rep") == rep,
            ).sort("tone")["p_changed"][:tones]
            for rep in range(REPS)
        ]
    )
    right = 1 - p if old == new else p
    assert shown.strategy == "bald"
    for values, q in ((shown.median, 0.5), (shown.low, 0.25), (shown.high, 0.75)):
        assert list(values) == pytest.approx(np.quantile(right, q, axis=0))


def test_a_run_that_has_ended_keeps_its_last_probability(frame: pl.DataFrame) -> None:
    cut = frame.filter((pl.col("rep") > 0) | (pl.col("tone") <= 3))
    shown = paper_page.curve(cut.filter(pl.col("rep") == 0), "bald", "normal", "slight", 9)
    whole = paper_page.curve(frame.filter(pl.col("rep") == 0), "bald", "normal", "slight", 9)
    assert shown.median[:3] == pytest.approx(whole.median[:3])
    assert shown.median[3:] == pytest.approx([whole.median[2]] * 6)


def test_runs_that_met_the_wrong_limit_first_are_marked(
    frame: pl.DataFrame, screens: dict[Key, tuple[int, str, int]]
) -> None:
    marked = 0
    for old in NAMES:
        for new in NAMES:
            shown = paper_page.curve(frame, "differential", old, new, MAX_TONES, LIMIT)
            wrong = [end for _, outcome, end in bads(screens, old, new) if outcome == "wrong"]
            assert sorted(tone for tone, _ in shown.wrong) == sorted(wrong)
            assert all(p < 0.02 for _, p in shown.wrong)
            marked += len(wrong)
    assert marked > 0


def test_cells_outside_two_standard_errors_are_listed(
    frame: pl.DataFrame, screens: dict[Key, tuple[int, str, int]], tmp_path: Path
) -> None:
    runs = [r for r in paper.runs_of(frame, MAX_TONES) if r.strategy == "differential"]
    compared, outside = paper_page.agreement(runs)
    assert compared == 8  # profound to profound is not in the paper's table
    found = {(old, new): gap for old, new, _, _, gap in outside}
    for old in NAMES:
        for new in NAMES:
            if old == new == "profound":
                continue
            tones = [right for right, _, _ in bads(screens, old, new)]
            mean, sd = paper_page.paper_table()[old, new]
            error = math.sqrt((max(sd, 0.3) ** 2 + max(np.std(tones, ddof=1), 0.3) ** 2) / 10)
            gap = (np.mean(tones) - mean) / error
            assert ((old, new) in found) == (abs(gap) > 2)
            if (old, new) in found:
                assert found[old, new] == pytest.approx(gap)
    vague = PROTOCOLS["paper-vague"]
    summary = paper_page.write_paper_results(frame, vague, MAX_TONES, "x", tmp_path)
    assert summary["agreement"]["within"] == 8 - len(outside)
    text = (tmp_path / "results.md").read_text()
    assert f"{8 - len(outside)} of 8 cells agree with the paper's" in text
    for old, new, ours, theirs, gap in outside:
        assert f"| {old} | {new} | {ours:.1f} | {theirs:g} | {gap:+.1f} |" in text


def test_further_repetitions_count_for_the_panels_alone(
    frame: pl.DataFrame, tmp_path: Path
) -> None:
    summary = paper_page.write_paper_results(frame, BEST, MAX_TONES, "x", tmp_path, reps=2)
    assert summary["groups"]["all"]["runs"] == 2 * 8
    text = (tmp_path / "results.md").read_text()
    assert f"Pairs: normal to normal {REPS}, normal to slight {REPS}, all cells {2 * 8}." in text


def test_wrongly_judged_pairs_of_real_ears_are_shown(tmp_path: Path) -> None:
    names = ("normal:3", "slight:0", "mild:14")
    frame = synthetic(["best"], names, ["differential"], seed=4)
    ears = {
        name: Ear(name, ((500.0, level), (1000.0, level + 5.0)))
        for name, level in zip(names, (10.0, 20.0, 40.0), strict=True)
    }
    paper_page.write_variant_results(frame, "t", "c", tmp_path, MAX_TONES, ears=ears)
    wrong = [key for key, value in summed_up(frame, MAX_TONES).items() if value[1] == "wrong"]
    text = (tmp_path / "results.md").read_text()
    assert wrong
    assert f"The {len(wrong)} runs that were judged wrongly" in text
    for _, _, old, new, _ in wrong:
        gap = ears[new].thresholds_db_hl[0][1] - ears[old].thresholds_db_hl[0][1]
        assert f"| {gap:+.0f} | {abs(gap):.0f} | {gap:+.0f} |" in text


def test_the_frontier_has_the_settings_that_none_beats_in_both(tmp_path: Path) -> None:
    labels = ("one", "another", "a third")
    frame = synthetic(labels, ("normal:3", "slight:0", "mild:14"), ["differential"], seed=4)
    summary = paper_page.write_variant_results(
        frame, "t", "c", tmp_path, MAX_TONES, against="another", frontier=True
    )
    found = summary["variants"]
    for label in labels:
        beaten = any(
            other["weighted_two_sided"] < found[label]["weighted_two_sided"]
            and other["wrong"] <= found[label]["wrong"]
            for other in found.values()
        )
        assert found[label]["on_frontier"] is not beaten
    assert any(numbers["on_frontier"] for numbers in found.values())
    assert "![wrong calls against tones" in (tmp_path / "results.md").read_text()
    assert (tmp_path / "frontier.png").exists()


def test_cells_and_their_mean_weigh_cells_alike() -> None:
    frame = synthetic(["best"], NAMES, ["differential"])
    runs = paper.runs_of(frame, MAX_TONES)
    lopsided = [r for r in runs if r.old != "normal" or r.rep == 0]  # fewer runs in three cells
    by_cell = paper_page.cells(lopsided)
    assert {cell: len(group) for cell, group in by_cell.items()} == {
        (old, new): 1 if old == "normal" else REPS for old in NAMES for new in NAMES
    }
    means = [np.mean([r.tones_to_right for r in group]) for group in by_cell.values()]
    assert paper_page.mean_of_cells(lopsided) == pytest.approx(np.mean(means))


# Variants --------------------------------------------------------------------------------------


def test_variants_are_weighted_like_the_papers_table(tmp_path: Path) -> None:
    labels, names = ("one way", "another"), ("normal:3", "slight:0", "mild:14", "profound")
    frame = synthetic(labels, names, ["differential"], seed=4)
    summary = paper_page.write_variant_results(frame, "A title", "a command", tmp_path, MAX_TONES)
    screens = summed_up(frame, MAX_TONES)
    text = (tmp_path / "results.md").read_text()
    assert text.startswith("## A title\n")
    assert "`a command`" in text
    table = table_rows(text)
    assert [name for name in table if name in labels] == list(labels)
    for label in labels:
        group = {
            key: value
            for key, value in screens.items()
            if key[0] == label and key[2:4] != ("profound", "profound")
        }
        assert len(group) == 15 * REPS
        kinds = {"same": (0, 0), "adjacent": (1, 1), "far": (2, 6)}
        means = {
            kind: np.mean([group[key][0] for key in group if low <= step(key) <= high])
            for kind, (low, high) in kinds.items()
        }
        weighted = (6 * means["same"] + 12 * means["adjacent"] + 30 * means["far"]) / 48
        outcomes = [outcome for _, outcome, _ in group.values()]
        shares = [outcomes.count(word) / len(group) for word in ("right", "wrong", "undecided")]
        errors, ends = [], []
        for column in (0, 2):  # tones to the right model, and by the two-sided rule
            parts = [
                [group[key][column] for key in group if low <= step(key) <= high]
                for low, high in kinds.values()
            ]
            shares_of = np.array([6, 12, 30]) / 48
            errors.append(
                np.sqrt(
                    sum(
                        w**2 * np.var(p, ddof=1) / len(p)
                        for w, p in zip(shares_of, parts, strict=True)
                    )
                )
            )
            ends.append(sum(w * np.mean(p) for w, p in zip(shares_of, parts, strict=True)))
        gaps = [
            [
                group[key][2] - screens[(labels[0], *key[1:])][2]
                for key in group
                if low <= step(key) <= high
            ]
            for low, high in kinds.values()
        ]
        gap = sum(w * np.mean(g) for w, g in zip(shares_of, gaps, strict=True))
        error = np.sqrt(
            sum(w**2 * np.var(g, ddof=1) / len(g) for w, g in zip(shares_of, gaps, strict=True))
        )
        near = " ~" if abs(gap) <= 2 * error else ""
        assert table[label] == [
            str(len(group)),
            f"{weighted:.2f} ± {errors[0]:.2f}",
            *(f"{mean:.1f}" for mean in means.values()),
            *map(percent, shares),
            f"{ends[1]:.2f} ± {errors[1]:.2f}",
            "-" if label == labels[0] else f"{gap:+.2f} ± {error:.2f}{near}",
        ]
        numbers = summary["variants"][label]
        assert numbers["weighted_mean"] == pytest.approx(weighted)
        assert {kind: numbers[kind] for kind in kinds} == pytest.approx(means)
        assert numbers["never"] == sum(right > MAX_TONES for right, _, _ in group.values())
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
