"""The study of rules: its conditions, its scores, and that its files come from its rows."""

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from earshift.cli import app
from earshift.engine.tone import Tone
from earshift.simulate.listener import retest_jitter
from earshift.studies import rules
from earshift.studies.case import Ear
from earshift.studies.rates import Calibration, Proportion, calibration, calls_of, wilson
from earshift.studies.rules import (
    ComparedCase,
    Condition,
    RuleCase,
    conditions,
    modelled,
    rule_cases,
    true_shift,
    worker_cases,
)
from earshift.studies.rules_page import cells_of, exceeds
from earshift.studies.sittings import Answerer, Manner, margin_db
from support.helpers import HZ, MILD, NORMAL

OCTAVES = np.log2(np.array(HZ) / 1000.0)
EAR = Ear("an ear", tuple(NORMAL.items()))
NAMED = {condition.name: condition for condition in conditions()}


def test_all_conditions_of_the_study_are_there_once() -> None:
    assert len(NAMED) == len(conditions()) == 12 + 10 * 3 + 3
    assert sum(c.group == "modelled" for c in conditions()) == 12
    assert {c.reference for c in conditions()} == {
        Manner(), Manner(spread_db=2.0), Manner(spread_db=8.0), rules.CARELESS
    }  # fmt: skip
    assert NAMED["4 kHz alone 30 dB"].rules() == ("niosh-15",)


def test_the_shapes_are_flat_sloping_notched_and_of_one_frequency() -> None:
    np.testing.assert_array_equal(NAMED["flat 15 dB"].shift_db(), 15.0)
    high = NAMED["high 20 dB"].shift_db()
    assert high[0] < 0.1
    assert high[-1] > 19.8
    assert (np.diff(high) > 0).all()
    notch = NAMED["notch 20 dB"].shift_db()
    assert notch[HZ.index(4000.0)] == 20.0
    assert notch[HZ.index(8000.0)] == pytest.approx(20.0 * np.exp(-2.0))
    low = NAMED["low 30 dB"].shift_db()
    assert low[0] > 29.0
    assert low[-1] < 0.1
    alone = NAMED["6 kHz alone 30 dB"].shift_db()
    assert alone[HZ.index(6000.0)] == alone.sum() == 30.0
    np.testing.assert_array_equal(NAMED["unchanged"].shift_db(), 0.0)


@pytest.mark.parametrize("rule", rules.RULE_NAMES)
def test_every_ear_is_clear_of_the_rule(rule: str) -> None:
    for seed in range(20):
        for name in ("unchanged", "flat 15 dB", "notch 20 dB"):
            delta = true_shift(EAR, NAMED[name], rule, seed)
            assert delta is not None
            assert abs(margin_db(rule, delta)) >= rules.CLEAR_DB
            assert np.abs(delta - NAMED[name].shift_db()).max() > 0.1  # jitter is part of the truth


def test_ears_too_loud_and_pairs_too_close_do_not_count() -> None:
    loud = Ear("loud", tuple(dict.fromkeys(HZ, 85.0).items()))
    assert true_shift(loud, NAMED["flat 20 dB"], "osha-sts", 0) is None
    close = Condition("pair", given_db=(0.0, 0.0, 9.0, 9.0, 9.0, 0.0, 0.0))
    assert true_shift(EAR, close, "osha-sts", 0) is None
    given = Condition("pair", given_db=(0.0, 0.0, 15.0, 15.0, 15.0, 0.0, 0.0))
    found = true_shift(EAR, given, "osha-sts", 0)
    assert found is not None
    assert margin_db("osha-sts", found) == pytest.approx(5.0)


def test_jitter_has_the_stated_spread_and_length() -> None:
    rng = np.random.default_rng(0)
    draws = np.array([retest_jitter(OCTAVES, 3.0, rng) for _ in range(4000)])
    np.testing.assert_allclose(draws.std(axis=0), 3.0, rtol=0.05)
    one_octave = np.corrcoef(draws[:, 0], draws[:, 1])[0, 1]
    assert one_octave == pytest.approx(np.exp(-0.5), abs=0.03)


def test_people_answer_in_their_manner() -> None:
    loud, soft = Tone(1000.0, 90.0), Tone(1000.0, -10.0)
    never, always, coin = (Answerer(list(NORMAL.values()), Manner(responder=who), 1)
                           for who in rules.RESPONDERS)  # fmt: skip
    assert not any(never.hears(loud) or never.presses() for _ in range(20))
    assert all(always.hears(soft) and always.presses() for _ in range(20))
    assert 20 < sum(coin.hears(loud) for _ in range(80)) < 60
    absent = Answerer(list(NORMAL.values()), Manner(spell=True, lapse=0.0), 3)
    answers = [absent.hears(loud) for _ in range(12)]
    first = answers.index(False)
    assert first < 6
    assert answers == [not first <= k < first + 3 for k in range(12)]
    rising = Answerer(list(NORMAL.values()), Manner(drift_db=40.0, lapse=0.0, guess=0.0), 4)
    near = Tone(1000.0, NORMAL[1000.0])
    heard = [rising.hears(near) for _ in range(30)]
    assert all(heard[:8])
    assert not any(heard[-8:])


def test_wilsons_interval() -> None:
    low, high = wilson(10, 100)
    assert (low, high) == (pytest.approx(0.0552, abs=1e-4), pytest.approx(0.1744, abs=1e-4))
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(0, 50)[0] == 0.0
    assert str(Proportion(0, 0)) == "-"


def test_calls_are_counted_by_their_truth() -> None:
    decisions = ["changed", "unchanged", "inconclusive", "not determinable", "changed"]
    tones = np.array([4.0, 6.0, 30.0, 2.0, 8.0])
    past = calls_of(decisions, tones, changed=True)
    assert (past.right.hits, past.wrong.hits, past.undecided.hits) == (2, 1, 2)
    assert (past.tones_mean, past.tones_median) == (10.0, 6.0)
    short = calls_of(decisions, tones, changed=False)
    assert (short.right.hits, short.wrong.hits) == (1, 2)
    assert calls_of([], np.array([]), changed=True).ears == 0


def test_calibration_tells_true_probabilities_from_boasts() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(8000)
    person = np.repeat(np.arange(2000), 4)
    honest: Calibration = calibration(p, rng.random(p.size) < p, person, draws=50)
    assert honest.error < 0.02
    assert honest.low <= honest.high
    assert honest.brier == pytest.approx(1 / 6, abs=0.01)
    assert sum(n for _, _, n in honest.bins) == p.size
    boast = calibration(p, rng.random(p.size) < 0.5 + 0.5 * (p - 0.5), person, draws=50)
    assert boast.error == pytest.approx(0.125, abs=0.02)


@pytest.mark.slow
def test_a_case_gives_the_same_rows_again_and_calls_what_is_there() -> None:
    two = (NAMED["unchanged"], Condition("flat 30 dB", "flat", 30.0))
    case = RuleCase(EAR, two)
    rows = case.rows()
    assert RuleCase(EAR, two[:1]).rows() == rows[:2]
    frame = pl.DataFrame(rows, schema=list(case.columns), orient="row")
    assert frame["rule"].to_list() == [*rules.RULE_NAMES] * 2
    assert frame["decision"].to_list() == ["unchanged"] * 2 + ["changed"] * 2
    assert (frame["tones_30"] <= frame["tones_50"]).all()
    assert (frame["tones_50"] <= frame["tones"]).all()
    assert (frame["effective"] > 200.0).all()


def test_somebody_who_never_answers_is_not_decided() -> None:
    rows = RuleCase(EAR, (NAMED["responder: never"], NAMED["responder: always"])).rows()
    assert {row[6] for row in rows} == {"inconclusive"}
    assert any(row[7] == "not reliable" for row in rows)


def test_audiograms_as_people_take_them_are_compared() -> None:
    rows = ComparedCase(EAR, ("audiograms", "twice")).rows()
    calls = {(row[0], row[1], row[2]): (row[5], row[6]) for row in rows}
    assert calls["osha-sts", "audiograms", "flat 20 dB"][0] == "changed"
    once, twice = (calls["niosh-15", method, "flat 20 dB"] for method in ("audiograms", "twice"))
    assert twice[0] == "changed"
    assert twice[1] > once[1] > 40
    assert not any(row[1] == "twice" for row in rows if row[0] == "osha-sts")
    assert {row[2] for row in rows} == {c.name for c in modelled()}


def test_a_condition_fails_by_the_lower_end_of_its_interval() -> None:
    assert not exceeds(Proportion(6, 300), 0.01)
    assert exceeds(Proportion(7, 300), 0.01)
    assert not exceeds(Proportion(10, 300), 0.02)
    assert exceeds(Proportion(11, 300), 0.02)
    assert exceeds(Proportion(15, 300), 0.03)
    assert not exceeds(Proportion(300, 300), None)


def test_cells_are_judged_by_rule_condition_and_side() -> None:
    rows = pl.DataFrame({
        "rule": ["osha-sts"] * 60, "condition": ["flat 15 dB"] * 60,
        "margin_db": [5.0] * 40 + [-5.0] * 20, "decision": ["changed"] * 37 + ["unchanged"] * 23,
        "reason": [""] * 60, "tones": [10] * 60, "silent": [2] * 60,
    })  # fmt: skip
    past, short = cells_of(rows, {("osha-sts", "flat 15 dB"): (0.01, 0.05)})
    assert (past.calls.wrong.hits, past.calls.ears, past.too_wrong) == (3, 40, True)
    assert (short.calls.right.hits, short.too_wrong, short.too_open) == (20, False, False)
    assert past.minutes == pytest.approx(0.8)


def write_workers(path: Path) -> Path:
    import gzip

    names = [f"{when}_{f:g}" for when in ("before", "after") for f in HZ]
    lines = ["worker," + ",".join(names)]
    for worker in (1, 2, 3):
        levels = [*NORMAL.values(), *(level + 30.0 for level in NORMAL.values())]
        lines.append(f"{worker}," + ",".join(f"{level:g}" for level in levels))
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return path


def test_pairs_of_workers_are_split_by_worker(tmp_path: Path) -> None:
    path = write_workers(tmp_path / "workers.csv.gz")
    held_back = worker_cases(path, "held-back", 10)
    assert {case.ear.name.split()[1] for case in held_back} == {"1", "3"}
    assert len(worker_cases(path, "tuning", 10)) == 1
    shift = np.array(held_back[0].conditions[0].given_db)
    assert np.abs(shift - 30.0).max() <= 5.0


@pytest.fixture
def ears(tmp_path: Path) -> Path:
    """Of either half three people with a hearing loss and three without, two ears each."""
    lines = ["SEQN,ear," + ",".join(str(int(f)) for f in HZ)]
    for person in range(1, 13):
        base = MILD if person % 4 < 2 else NORMAL
        for ear in ("left", "right"):
            lines.append(f"{person},{ear}," + ",".join(str(int(t)) for t in base.values()))
    path = tmp_path / "ears.csv"
    path.write_text("\n".join(lines))
    return path


def test_ears_with_and_without_a_loss_take_turns(ears: Path) -> None:
    drawn = rules.drawn_ears(ears, "held-back", 4)
    assert [rules.has_loss(ear) for ear in drawn] == [True, False] * 2
    assert len({case.key for case in rule_cases(drawn)}) == 4 * 4
    original = MILD[4000.0]
    assert abs(dict(drawn[0].thresholds_db_hl)[4000.0] - math.floor(original)) <= 3.5


@pytest.mark.slow
def test_the_command_writes_tables_and_pictures_from_its_rows(
    ears: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = [NAMED[name] for name in ("unchanged", "responder: always")]
    monkeypatch.setattr(rules, "conditions", lambda: few)
    out = tmp_path / "out"
    workers = write_workers(tmp_path / "workers.csv.gz")
    command = ["study", "rules", "--ears", str(ears), "--out", str(out), "--people", "2",
               "--workers", str(workers), "--pairs", "1", "--exams", "1", "--compared", "1",
               "--bald", "0", "--calibration", "1", "--model", "0", "--brute", "0",
               "--jobs", "1", "--json"]  # fmt: skip
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["people"] == 2
    assert {"osha-sts", "niosh-15"} <= {row["rule"] for row in summary["targets"]}
    text = (out / "results.md").read_text()
    for words in ("Asked for and reached", "Hughson-Westlake", "Calibration", "First exams",
                  "People who do not listen"):  # fmt: skip
        assert words in text
    for picture in ("calls.png", "calibration.png", "exams.png"):
        assert (out / picture).read_bytes().startswith(b"\x89PNG")
    again = CliRunner().invoke(app, command)  # all parts are there: the same files at once
    assert again.exit_code == 0
    assert (out / "results.md").read_text() == text


def test_too_few_people_are_said(ears: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    few = ["study", "rules", "--ears", str(ears), "--out", out, "--people", "30"]
    result = CliRunner().invoke(app, few)
    assert result.exit_code == 2
    assert "6 people" in " ".join(result.output.split())
