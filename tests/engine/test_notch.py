"""The noise notch: two kinds of audiogram, one machinery."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from typer.testing import CliRunner

import earshift as es
from earshift.cli import app
from earshift.engine import notch
from earshift.engine.domain import DOMAINS
from earshift.engine.notch import CENTRES_HZ, DEPTHS_DB, NotchModel, dip, parts_without
from earshift.studies import notch as notchstudy
from earshift.studies.case import Ear
from support.helpers import HZ, MILD, NORMAL, run_exam

FREQUENCIES = np.array(HZ)


def notched(
    ear: dict[float, float], centre_hz: float, depth_db: float = 20.0
) -> dict[float, float]:
    shape = depth_db * dip(np.array(list(ear)), centre_hz)
    return {f: level + float(d) for (f, level), d in zip(ear.items(), shape, strict=True)}


def screen(**options: object) -> es.Screen:
    return es.Screen(hypotheses="notch", **{"domain": "audiometer", **options})  # type: ignore[arg-type]


def test_a_dip_is_as_deep_and_as_wide_as_it_says() -> None:
    assert dip(np.array([4000.0]), 4000.0)[0] == 1.0
    half_octave = dip(np.array([4000.0 / 2**0.5, 4000.0 * 2**0.5]), 4000.0)
    np.testing.assert_allclose(half_octave, math.exp(-0.5))


@pytest.mark.parametrize("population", ["level", "any"])
def test_both_hypotheses_are_whole_mixtures(population: str) -> None:
    model = NotchModel(DOMAINS["audiometer"], es.NotchSettings(population=population))
    for parts in (model.without, model.having):
        assert sum(part.weight for part in parts) == pytest.approx(1.0, abs=1e-5)
        for part in parts:
            assert np.linalg.eigvalsh(np.array(part.norm.cov_db2)).min() > 0
    assert len(model.having) == len(model.without) * len(CENTRES_HZ) * len(DEPTHS_DB)
    # A part with a dip is the part without, its mean moved by that dip alone.
    first = model.having[0]
    moved = np.array(first.norm.mean_db_hl) - np.array(model.without[0].norm.mean_db_hl)
    np.testing.assert_allclose(moved, first.depth_db * dip(FREQUENCIES, first.centre_hz))


def test_the_sloping_population_holds_slopes_and_the_level_one_does_not() -> None:
    """A steep loss is likelier among all ears without a notch than among the level ones."""
    steep = np.array([10.0, 15.0, 30.0, 45.0, 60.0, 70.0, 75.0])

    def density(population: str) -> float:
        return sum(
            weight * multivariate_normal.pdf(steep, norm.mean_db_hl, np.array(norm.cov_db2))
            for weight, norm in parts_without(population)
        )

    assert density("any") > 100.0 * density("level")


def test_before_the_first_tone_the_prior_speaks() -> None:
    for prevalence in (0.5, 0.2):
        fresh = screen(settings=es.NotchSettings(prevalence=prevalence))
        assert fresh.p_changed == pytest.approx(prevalence)
        assert fresh.log_bf == pytest.approx(0.0, abs=1e-4)
        assert fresh.decision == "inconclusive"


@pytest.mark.parametrize("centre_hz", [3000.0, 4000.0, 6000.0])
def test_a_notch_is_found_and_a_flat_ear_cleared(centre_hz: float) -> None:
    flat = dict.fromkeys(HZ, 10.0)
    having = run_exam(screen(seed=1), notched(flat, centre_hz, 25.0), 20, seed=5)
    without = run_exam(screen(seed=1), flat, 20, seed=5)
    assert having.decision == "notch"
    assert having.p_changed > 0.95
    assert without.p_changed < 0.5
    assert str(having.verdict()).startswith("A notch around 3-6 kHz: probability of a notch")
    deepest = max(having.verdict().shifts, key=lambda shift: shift.shift_db)
    assert abs(math.log2(deepest.frequency_hz / centre_hz)) <= 0.5
    assert 10.0 < deepest.shift_db < 32.0


def test_the_evidence_is_that_of_the_thresholds_when_they_are_known() -> None:
    """Many tones around a steep listener's thresholds: the mixture's own densities decide alike."""
    for ear, wanted in ((NORMAL, False), (notched(NORMAL, 4000.0), True)):
        sitting = screen(seed=2)
        for f in HZ:
            for step in (-15.0, -10.0, -5.0, 5.0, 10.0, 15.0):
                level = min(max(round((ear[f] + step) / 5.0) * 5.0, -10.0), 100.0)
                for _ in range(3):
                    sitting.tell(es.Tone(f, level), level > ear[f])
        assert (sitting.p_changed > 0.5) is wanted
        for threshold in sitting.thresholds(HZ):
            assert abs(threshold.level_db_hl - ear[threshold.frequency_hz]) < 6.0


def test_the_next_tone_tells_the_hypotheses_apart() -> None:
    """The first tone is near the usual notch, not at 500 Hz, where both expect the same."""
    fresh = screen()
    scores = fresh.scores()
    by_frequency = dict(zip(fresh.domain.smooth[0].values, scores.max(axis=1), strict=True))
    assert by_frequency[4000.0] > 3.0 * by_frequency[500.0]
    assert fresh.ask().frequency_hz in (3000.0, 4000.0, 6000.0)


def test_it_goes_through_json_and_asks_the_same() -> None:
    sitting = run_exam(screen(seed=4, limits=es.Limits()), MILD, 6)
    sitting.tell_catch(False)
    back = es.Screen.from_dict(json.loads(json.dumps(sitting.to_dict())))
    assert back.ask() == sitting.ask()
    assert back.verdict() == sitting.verdict()
    assert back.to_dict() == sitting.to_dict()
    assert sitting.to_dict()["design"]["hypotheses"] == "notch"


def test_other_screens_do_not_mention_hypotheses() -> None:
    other = es.Screen(es.population_norm())
    assert "hypotheses" not in other.to_dict()["design"]


def test_limits_bind_it() -> None:
    limits = es.Limits(cap_db_hl=60.0)
    sitting = run_exam(screen(limits=limits), dict.fromkeys(HZ, 95.0), 12)
    assert max(trial.tone.level_db_hl for trial in sitting.trials) <= 60.0
    assert sitting.decision != "no notch" or sitting.p_changed <= 0.1


def test_somebody_who_reports_silence_is_not_cleared() -> None:
    sitting = run_exam(screen(seed=1, settings=es.NotchSettings(no_notch_at=0.45)), NORMAL, 20)
    assert sitting.decision == "no notch"
    for _ in range(3):
        sitting.tell_catch(True)
    assert sitting.decision == "inconclusive"


@pytest.mark.parametrize("strategy", ["differential", "bald", "random", "uncertainty"])
def test_every_strategy_runs(strategy: str) -> None:
    sitting = run_exam(screen(settings=es.NotchSettings(strategy=strategy)), NORMAL, 4)
    assert 0.0 < sitting.p_changed < 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hypotheses": "dip"}, 'must be "notch"'),
        ({"hypotheses": "notch", "rule": "osha-sts"}, "no reference, protocol or rule"),
        ({"hypotheses": "notch", "protocol": "best"}, "no reference, protocol or rule"),
        ({"hypotheses": "notch", "reference": es.population_norm()}, "no reference"),
        ({"hypotheses": "notch", "settings": es.RuleSettings()}, "NotchSettings"),
        ({"rule": "osha-sts", "settings": es.NotchSettings()}, "RuleSettings"),
        ({}, 'only hypotheses="notch"'),
        (
            {"hypotheses": "notch", "domain": es.Domain.tones((500, 1000, 2000), (0, 50))},
            "500 to 2000 Hz",
        ),
        ({"hypotheses": "notch", "domain": "relative"}, "tones in dB HL"),
    ],
)
def test_misuse_is_refused_with_a_reason(options: dict[str, object], message: str) -> None:
    if options.get("rule") == "osha-sts" and "hypotheses" not in options:
        options = {"reference": es.population_norm(), **options}
    with pytest.raises(ValueError, match=message):
        es.Screen(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [{"population": "steep"}, {"prevalence": 0.95}, {"max_tones": 0}, {"lapse": 0.7}],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must|need|guess"):
        es.NotchSettings(**settings)  # type: ignore[arg-type]


def test_a_part_without_a_fixed_point_counts_for_nothing() -> None:
    """Contradictory answers leave a probability and say whether the fit settled."""
    sitting = screen()
    for heard in (True, False, True, False):
        for f in HZ:
            sitting.tell(es.Tone(f, -10.0 if heard else 100.0), heard)
    assert 0.0 <= sitting.p_changed <= 1.0
    model = NotchModel(sitting.domain, es.NotchSettings())
    state = model.assess(sitting.trials)
    assert isinstance(state.converged, bool)
    assert state.log_bf == pytest.approx(sitting.log_bf)


# The study ---------------------------------------------------------------------------------------


def ear(*levels: float) -> Ear:
    return Ear("an ear", tuple(zip(HZ, levels, strict=True)))


def test_ears_are_grouped_by_their_neighbours() -> None:
    assert notchstudy.group_of(ear(5, 5, 10, 15, 15, 15, 10)) == "level"
    assert notchstudy.group_of(ear(5, 5, 10, 15, 20, 30, 40)) == "sloping"
    assert notchstudy.group_of(ear(5, 5, 40, 15, 20, 30, 10)) == "sloping"
    assert notchstudy.group_of(ear(5, 5, 10, 15, 30, 15, 10)) is None


def test_an_even_chance_is_not_right() -> None:
    p = np.array([0.2, 0.5, 0.9])
    np.testing.assert_array_equal(notchstudy.right(p, True), [False, False, True])
    np.testing.assert_array_equal(notchstudy.right(p, False), [True, False, False])


def test_with_all_thresholds_known_the_densities_decide() -> None:
    case = notchstudy.NotchCase(ear(*NORMAL.values()), "level", (notchstudy.ALL_KNOWN,))
    rows = [dict(zip(case.columns, row, strict=True)) for row in case.rows()]
    assert [row["notch"] for row in rows] == [False, True]
    without, having = (row["p_notch"] for row in rows)
    assert without < 0.5 < having


def write_ears(path: Path, ears: list[tuple[float, ...]]) -> Path:
    """A file of ears of the held-back half."""
    rows = [",".join(["SEQN", *(f"{f:g}" for f in HZ)])]
    rows += [",".join(map(str, (2 * k + 1, *levels))) for k, levels in enumerate(ears)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_the_study_writes_its_files_from_its_rows(tmp_path: Path) -> None:
    level = [(5.0 + k, 5.0, 10.0, 15.0, 15.0, 15.0, 10.0) for k in range(3)]
    sloping = [(5.0 + k, 5.0, 10.0, 15.0, 30.0, 40.0, 45.0) for k in range(2)]
    of_its_own = [(5.0, 5.0, 10.0, 15.0, 40.0, 15.0, 10.0)]
    ears = write_ears(tmp_path / "ears.csv", [*level, *sloping, *of_its_own])
    command = [
        "study", "notch", "--out", str(tmp_path), "--ears", str(ears),
        "--level", "3", "--sloping", "2", "--jobs", "1", "--json",
    ]  # fmt: skip
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    summary = json.loads(done.output)
    assert summary["groups"]["level"]["differential"]["both"]["n"] == 6
    assert set(summary["groups"]["sloping"]) == {"differential", "any", notchstudy.ALL_KNOWN}
    text = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "within 20 tones" in text
    assert (tmp_path / "notch.png").stat().st_size > 10_000


def test_too_many_ears_are_refused(tmp_path: Path) -> None:
    path = write_ears(tmp_path / "ears.csv", [(5.0, 5.0, 10.0, 15.0, 15.0, 15.0, 10.0)])
    with pytest.raises(ValueError, match="level"):
        notchstudy.notch_cases(path, "held-back", 2, 0)


def test_the_prior_is_learned_from_the_tuning_half_alone() -> None:
    block = notch.tables()["without_notch"]
    assert "even SEQN" in block["derivation"]
    assert block["populations"]["level"]["n"] < block["populations"]["any"]["n"] < block["n"]
