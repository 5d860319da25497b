"""The study of rules: its conditions, its scores, and that its files come from its rows."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import earshift as es
from earshift.cli import app
from earshift.engine.rules import RULES
from earshift.simulate.listener import retest_jitter
from earshift.studies import rules
from earshift.studies.case import Ear
from earshift.studies.rates import Calibration, Proportion, calibration, calls_of, wilson
from earshift.studies.rules import Condition, RuleCase, conditions, draw_shift, shifted
from support.helpers import HZ, NORMAL

OCTAVES = np.log2(np.array(HZ) / 1000.0)
EAR = Ear("an ear", tuple(NORMAL.items()))
NAMED = {condition.name: condition for condition in conditions()}


def test_all_conditions_of_the_study_are_there_once() -> None:
    assert len(NAMED) == len(conditions()) == 29
    assert {c.lapse for c in conditions()} == {0.0, 0.02, 0.05, 0.10}
    assert sum("lapses" in name for name in NAMED) == 12


def test_the_shapes_are_flat_sloping_and_notched() -> None:
    np.testing.assert_array_equal(NAMED["flat 15 dB"].shift_db(OCTAVES), 15.0)
    high = NAMED["high 20 dB"].shift_db(OCTAVES)
    assert high[0] < 0.1
    assert high[-1] > 19.9
    assert (np.diff(high) > 0).all()
    assert NAMED["high 20 dB"].shift_db(np.array([np.log2(2.3)]))[0] == pytest.approx(10.0)
    notch = NAMED["notch 20 dB"].shift_db(OCTAVES)
    assert notch[HZ.index(4000.0)] == 20.0
    assert notch[HZ.index(8000.0)] == pytest.approx(20.0 * np.exp(-2.0))
    low = NAMED["low 30 dB"].shift_db(OCTAVES)
    assert low[0] > 29.0
    assert low[-1] < 0.1
    np.testing.assert_array_equal(NAMED["unchanged"].shift_db(OCTAVES), 0.0)


def test_jitter_is_the_same_draw_under_every_condition_and_part_of_the_truth() -> None:
    still, moved = (shifted(EAR, NAMED[name], seed=3) for name in ("unchanged", "flat 20 dB"))
    np.testing.assert_allclose(moved.delta_db - still.delta_db, 20.0)
    assert np.abs(still.delta_db).max() > 0.1
    none = shifted(EAR, NAMED["unchanged, no jitter"], seed=3)
    np.testing.assert_array_equal(none.delta_db, 0.0)


def test_louder_headphones_move_the_answers_and_not_the_truth() -> None:
    gain = shifted(EAR, Condition("gain", jitter_sd_db=0.0, gain_db=5.0), seed=0)
    assert RULES["osha-sts"].margin(gain.delta_at(RULES["osha-sts"])) == pytest.approx(-10.0)
    assert gain.listener().threshold(1000.0) == pytest.approx(NORMAL[1000.0] - 5.0)


def test_jitter_has_the_stated_spread_and_length() -> None:
    rng = np.random.default_rng(0)
    draws = np.array([retest_jitter(OCTAVES, 3.0, rng) for _ in range(4000)])
    np.testing.assert_allclose(draws.std(axis=0), 3.0, rtol=0.05)
    one_octave = np.corrcoef(draws[:, 0], draws[:, 1])[0, 1]
    assert one_octave == pytest.approx(np.exp(-0.5), abs=0.03)


def test_ears_past_the_loudest_level_are_known() -> None:
    loud = Ear("loud", tuple(dict.fromkeys(HZ, 80.0).items()))
    flat = Condition("flat", "flat", 20.0, jitter_sd_db=0.0)
    assert shifted(loud, flat, 0).beyond(RULES["osha-sts"])
    assert not shifted(EAR, flat, 0).beyond(RULES["osha-sts"])


def test_shifts_drawn_from_the_prior_meet_the_rule_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    for name in rules.RULE_NAMES:
        rule = RULES[name]
        columns = [HZ.index(f) for f in rule.frequencies_hz]
        for prevalence in (0.06, 0.24):
            settings = es.RuleSettings(prevalence=prevalence)
            met = [
                rule.margin(draw_shift(OCTAVES, settings, rule, rng)[columns]) >= 0
                for _ in range(3000)
            ]
            assert np.mean(met) == pytest.approx(prevalence, abs=0.025)


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


def test_a_case_gives_the_same_rows_again_and_all_methods_answer() -> None:
    two = (NAMED["unchanged"], NAMED["flat 30 dB"])
    case = RuleCase(EAR, es.RuleSettings(), two, rules.METHODS, ("osha-sts",))
    rows = case.rows()
    assert [row[:3] for row in rows] == [
        ("osha-sts", method, condition.name) for condition in two for method in rules.METHODS
    ]
    mine = [row for row in rows if row[1] == "rule"]
    assert [row[6] for row in mine] == ["unchanged", "changed"]
    assert RuleCase(EAR, es.RuleSettings(), two, ("rule",), ("osha-sts",)).rows() == mine
    manual = [row for row in rows if row[1] == "hughson-westlake"]
    assert all(row[7] > 40 for row in manual)


@pytest.fixture
def ears(tmp_path: Path) -> Path:
    """Two people of each half, two ears each."""
    lines = ["SEQN,ear," + ",".join(str(int(f)) for f in HZ)]
    for person in range(1, 5):
        for ear in ("left", "right"):
            levels = [str(int(t) + person) for t in NORMAL.values()]
            lines.append(f"{person},{ear}," + ",".join(levels))
    path = tmp_path / "ears.csv"
    path.write_text("\n".join(lines))
    return path


def test_the_command_writes_tables_and_pictures_from_its_rows(ears: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["study", "rules", "--ears", str(ears), "--out", str(out), "--people", "2",
               "--compared", "1", "--calibration", "1", "--full", "1", "--frontier", "1",
               "--jobs", "1", "--json"]  # fmt: skip
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert {row["rule"] for row in summary["targets"]} == {"osha-sts", "niosh-15"}
    text = (out / "results.md").read_text()
    for words in ("Asked for and reached", "Hughson-Westlake", "Calibration", "full audiogram"):
        assert words in text
    for picture in ("calls.png", "calibration.png"):
        assert (out / picture).read_bytes().startswith(b"\x89PNG")
    flat = summary["rules"]["osha-sts"]["conditions"]["flat 30 dB"]["changed"]
    assert flat["ears"] == 2
    before = text
    again = CliRunner().invoke(app, command)  # all parts are there: the same files at once
    assert again.exit_code == 0
    assert (out / "results.md").read_text() == before


def test_too_few_people_are_said(ears: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    few = ["study", "rules", "--ears", str(ears), "--out", out, "--people", "3"]
    result = CliRunner().invoke(app, few)
    assert result.exit_code == 2
    assert "has 2 people" in result.output
