"""The paper's experiment: its rows, its summaries and its designs."""

import math
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import earshift as es
from earshift.engine.domain import DOMAINS
from earshift.engine.norms import class_median, class_names
from earshift.engine.protocol import PROTOCOLS
from earshift.studies import paper
from earshift.studies.case import Ear, seed_of
from earshift.studies.ears import read_ears
from earshift.studies.paper import PaperCase, Run, paper_cases
from earshift.studies.run import frame_of

BEST = PROTOCOLS["best"]

# Rows ------------------------------------------------------------------------------------------

ALL = PaperCase(
    label="a label",
    protocol=BEST,
    strategies=paper.STRATEGIES,
    old=Ear.of_class("slight"),
    news=(Ear.of_class("slight"), Ear.of_class("mild")),
    rep=2,
    seed=11,
    max_tones=7,
)


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    """One case with all strategies, same and changed."""
    return frame_of(ALL.rows(), PaperCase.columns)


def test_one_row_per_tone_and_exactly_these_columns(rows: pl.DataFrame) -> None:
    assert rows.schema == {
        "protocol": pl.String,
        "strategy": pl.String,
        "old": pl.String,
        "new": pl.String,
        "rep": pl.Int64,
        "tone": pl.Int64,
        "frequency_hz": pl.Float64,
        "level_db_hl": pl.Float64,
        "heard": pl.Boolean,
        "log_bf": pl.Float64,
        "p_changed": pl.Float64,
    }
    names = ("protocol", "strategy", "old", "new", "rep")
    tones = {key: part["tone"].to_list() for key, part in rows.group_by(names)}
    assert tones == {
        ("a label", strategy, "slight", new, 2): list(
            range(1, (7 if strategy == "differential" else paper.BASELINE_TONES) + 1)
        )
        for strategy in ("differential", "bald", "uncertainty", "random")
        for new in ("slight", "mild")
    }
    sigmoid = 1 / (1 + np.exp(-rows["log_bf"].to_numpy()))
    assert rows["p_changed"].to_numpy() == pytest.approx(sigmoid, abs=1e-12)


def test_baselines_run_as_long_as_a_longer_screen() -> None:
    case = replace(ALL, strategies=("random",), news=ALL.news[:1], max_tones=32)
    assert [row[5] for row in case.rows()] == list(range(1, 33))


def test_every_strategy_meets_the_same_first_exam(rows: pl.DataFrame) -> None:
    """Screens rebuilt against one first exam, recomputed here, show the evidence in the rows."""
    first = es.Exam(seed=seed_of(11, 2, "slight"), max_tones=50)
    ear = es.Listener.of_class("slight", seed=seed_of(11, 2, "slight", "first"))
    while not first.done:
        tone = first.ask()
        first.tell(tone, ear(tone))
    for _, part in rows.group_by("strategy", "new"):
        screen = es.Screen(first, BEST)
        for row in part.sort("tone").head(12).iter_rows(named=True):
            screen.tell(es.Tone(row["frequency_hz"], row["level_db_hl"]), row["heard"])
            if row["tone"] in (1, 7, 12):
                assert row["log_bf"] == pytest.approx(screen.log_bf, abs=1e-9)


def test_every_strategy_meets_the_same_luck(rows: pl.DataFrame) -> None:
    """The n-th tone of any strategy that is easier to hear is heard if the harder one was."""
    compared = 0
    for new in ("slight", "mild"):
        ear = es.Listener.of_class(new)
        answers = {
            strategy: [
                (ear.p_heard(es.Tone(row["frequency_hz"], row["level_db_hl"])), row["heard"])
                for row in rows.filter(
                    pl.col("new") == new, pl.col("strategy") == strategy
                ).iter_rows(named=True)
            ]
            for strategy in paper.STRATEGIES
        }
        for one, other in combinations(answers.values(), 2):
            for pair in zip(one, other, strict=False):
                (p_hard, hard), (p_easy, easy) = sorted(pair, key=lambda answer: answer[0])
                assert easy or not hard
                assert hard == easy or p_hard < p_easy
                compared += 0.1 < p_hard < p_easy < 0.9
    assert compared > 10  # pairs of tones where chance had a say


def test_a_strategy_alone_gives_the_rows_it_gives_in_company(rows: pl.DataFrame) -> None:
    alone = frame_of(replace(ALL, strategies=("random",)).rows(), PaperCase.columns)
    of_all = rows.filter(pl.col("strategy") == "random")
    assert_frame_equal(alone, of_all, check_exact=True)


@pytest.mark.parametrize("option", [{"spread_db": 12.0}, {"lapse": 0.4}, {"guess": 0.4}])
def test_the_listener_is_the_one_asked_for(rows: pl.DataFrame, option: dict[str, float]) -> None:
    """Random tones do not depend on answers, so only the listener can make a difference."""
    case = replace(ALL, strategies=("random",), news=ALL.news[1:], max_tones=30, **option)
    heard = np.array([row[8] for row in case.rows()])
    usual = rows.filter(pl.col("strategy") == "random", pl.col("new") == "mild")
    ear = es.Listener.of_class("mild", seed=seed_of(11, 2, "slight", "mild", "screen"), **option)
    tones = [es.Tone(*tone) for tone in usual.select("frequency_hz", "level_db_hl").rows()]
    assert heard.tolist() == [ear(tone) for tone in tones]
    assert heard.tolist() != usual["heard"].to_list()


def test_tones_come_from_the_grid_asked_for() -> None:
    case = replace(ALL, strategies=("differential",), domain="audiometer")
    assert {row[6] for row in case.rows()} <= set(DOMAINS["audiometer"].smooth[0].values)


def test_until_right_stops_once_the_right_model_has_won() -> None:
    limit = math.log(100.0)
    whole = replace(ALL, strategies=("differential",), news=(Ear.of_class("moderate"),))
    full = [row[9] for row in whole.rows()]
    cut = [row[9] for row in replace(whole, until_right=True).rows()]
    assert len(cut) < len(full) == 7
    assert cut == full[: len(cut)]
    assert cut[-1] >= limit > max(cut[:-1], default=-math.inf)
    longer = [row[9] for row in replace(whole, until_right=True, least_tones=5).rows()]
    assert longer == full[:5]


def test_other_protocols_meet_the_same_first_exam() -> None:
    given = (ALL.old, 11, 2, 3.0, 0.0, 0.0, "fine")
    assert paper.first_exam(*given) is paper.first_exam(*given)
    assert paper.first_exam(*given).trials != paper.first_exam(ALL.old, 11, 3, *given[3:]).trials


def test_baselines_may_have_fewer_repetitions_and_panels_more() -> None:
    cases = paper_cases(BEST, 3, baseline_reps=1, panel_reps=5)
    assert len({case.key for case in cases}) == len(cases)
    done = [
        (strategy, case.old.name, new.name, case.rep)
        for case in cases
        for strategy in case.strategies
        for new in case.news
    ]
    assert len(done) == len(set(done))
    for strategy, reps in (("differential", 3), ("bald", 1)):
        for old in class_names():
            for new in class_names():
                wanted = 5 if (old, new) in paper.PANELS else reps
                assert [d[3] for d in done if d[:3] == (strategy, old, new)] == list(range(wanted))


def test_seeds_are_the_same_on_every_machine() -> None:
    assert seed_of(0, 3, "mild", "screen") == 196834328537531
    assert seed_of(0, 3, "mild") != seed_of(0, 3, "mild", "screen")
    assert seed_of(1, 23) != seed_of(12, 3)


# Summaries -------------------------------------------------------------------------------------

LIMIT = math.log(100.0)


def by_hand(*screens: tuple[str, str, str, int, list[float]]) -> pl.DataFrame:
    """Rows by hand: (strategy, old, new, rep, log_bf after each tone)."""
    return frame_of(
        [
            ("p", strategy, old, new, rep, tone, 1000.0, 20.0, True, log_bf, 0.5)
            for strategy, old, new, rep, path in screens
            for tone, log_bf in enumerate(path, start=1)
        ],
        PaperCase.columns,
    )


def summed_up(old: str, new: str, path: list[float], max_tones: int = 4) -> tuple[object, ...]:
    (run,) = paper.runs_of(by_hand(("differential", old, new, 0, path)), max_tones)
    return run.tones_to_right, run.reached, run.outcome, run.tones_to_outcome


@pytest.mark.parametrize(
    ("path", "changed", "unchanged"),
    [
        # tones to the right model, whether it got there, how the two-sided rule ends and when
        ([1, 2, 5, 6], (3, True, "right", 3), (5, False, "wrong", 3)),
        ([-1, -5, -6, -7], (5, False, "wrong", 2), (2, True, "right", 2)),
        ([-5, 0, 0, 5], (4, True, "wrong", 1), (1, True, "right", 1)),
        ([1, -1, 4.6, -4.6], (5, False, "undecided", 4), (5, False, "undecided", 4)),
        ([LIMIT, 0, 0, 0], (1, True, "right", 1), (5, False, "wrong", 1)),
        ([-LIMIT, 0, 0, 0], (5, False, "wrong", 1), (1, True, "right", 1)),
        ([0, 0, 0, 5], (4, True, "right", 4), (5, False, "wrong", 4)),
        ([0, 0, 0, 0, 9], (5, False, "undecided", 4), (5, False, "undecided", 4)),  # too late
        ([5], (1, True, "right", 1), (5, False, "wrong", 1)),  # stopped early
    ],
)
def test_a_screen_summed_up(
    path: list[float], changed: tuple[object, ...], unchanged: tuple[object, ...]
) -> None:
    assert summed_up("normal", "mild", [float(x) for x in path]) == changed
    assert summed_up("mild", "mild", [float(x) for x in path]) == unchanged


def test_the_limit_is_the_given_bayes_factor() -> None:
    frame = by_hand(("differential", "normal", "mild", 0, [1.0, 2.0, 3.0]))
    tones = [paper.runs_of(frame, 3, factor)[0].tones_to_right for factor in (2.0, 7.0, 20.0, 21.0)]
    assert tones == [1, 2, 3, 4]


def test_rows_may_come_in_any_order_and_screens_keep_theirs() -> None:
    frame = by_hand(
        ("random", "normal", "mild", 1, [0.0, 5.0]),
        ("random", "normal", "mild", 0, [5.0]),
        ("differential", "normal", "mild", 0, [0.0, 0.0, 5.0]),
    )
    runs = paper.runs_of(frame, 4)
    assert [(r.label, r.strategy, r.rep, r.tones_to_right) for r in runs] == [
        ("p", "random", 1, 2),
        ("p", "random", 0, 1),
        ("p", "differential", 0, 3),
    ]
    shuffled = paper.runs_of(frame.sample(fraction=1.0, shuffle=True, seed=1), 4)
    assert sorted(map(repr, shuffled)) == sorted(map(repr, runs))


def run(tones: int, outcome: str = "right", ending: int = 1, **where: Any) -> Run:
    place = {"strategy": "differential", "old": "normal", "new": "mild", "rep": 0, **where}
    return Run(
        label="p",
        tones_to_right=tones,
        reached=tones <= 30,
        outcome=outcome,
        tones_to_outcome=ending,
        **place,
    )


def test_a_tally_counts_never_as_one_more_than_the_maximum() -> None:
    numbers = paper.tally(
        [run(3, "right", 3), run(31, "wrong", 8), run(31, "undecided", 30), run(7, "wrong", 5)]
    )
    assert numbers.runs == 4
    assert numbers.mean_tones == pytest.approx(18.0)
    assert numbers.sd_tones == pytest.approx(np.std([3, 31, 31, 7], ddof=1))
    assert numbers.never == 2
    assert (numbers.right, numbers.wrong, numbers.undecided) == (0.25, 0.5, 0.25)
    assert numbers.mean_tones_two_sided == pytest.approx(46 / 4)


def test_one_run_has_no_spread() -> None:
    assert paper.tally([run(3)]).sd_tones == 0.0


def test_paired_differences_pair_what_belongs_together() -> None:
    """Cells differ a lot, strategies by a fixed amount: only pairing can see it exactly."""
    runs = [
        run(base + step, strategy=strategy, new=new, rep=rep)
        for new, base in (("mild", 3), ("severe", 20))
        for rep in range(4)
        for strategy, step in (("differential", 0), ("random", 2))
    ]
    extra = [run(31, strategy="random", rep=99), run(1, new="profound")]  # without a partner
    assert paper.paired_difference(runs + extra, "differential", "random") == (-2.0, -2.0, -2.0)
    assert paper.paired_difference(runs[::-1], "random", "differential") == (2.0, 2.0, 2.0)


def test_ties_are_no_difference() -> None:
    runs = [run(9, strategy=s, rep=rep) for s in ("differential", "bald") for rep in range(5)]
    assert paper.paired_difference(runs, "differential", "bald") == (0.0, 0.0, 0.0)


def test_the_interval_of_a_paired_difference_is_that_of_its_mean() -> None:
    gaps = np.random.default_rng(1).integers(-9, 7, 200)
    runs = [run(20, strategy="random", rep=rep) for rep in range(200)]
    runs += [run(int(20 + gap), rep=rep) for rep, gap in enumerate(gaps)]
    mean, low, high = paper.paired_difference(runs, "differential", "random")
    error = gaps.std(ddof=1) / math.sqrt(200)
    assert mean == pytest.approx(gaps.mean())
    assert low == pytest.approx(mean - 1.96 * error, abs=0.2 * error)
    assert high == pytest.approx(mean + 1.96 * error, abs=0.2 * error)


def test_nothing_to_pair_is_an_error() -> None:
    with pytest.raises(ValueError, match="no runs of both differential and bald"):
        paper.paired_difference([run(3), run(3, strategy="random")], "differential", "bald")


def test_only_profound_to_profound_cannot_be_decided() -> None:
    names = class_names()
    left_out = [
        (old, new)
        for old in names
        for new in names
        if not paper.decidable(run(3, old=old, new=new))
    ]
    assert left_out == [("profound", "profound")]


@pytest.mark.parametrize(
    ("old", "new", "far"),
    [
        ("normal", "normal", "same"),
        ("normal", "slight", "adjacent"),
        ("severe", "moderately-severe", "adjacent"),
        ("normal", "mild", "far"),
        ("profound", "normal", "far"),
        ("mild:3", "mild:3", "same"),
        ("mild:3", "slight:140", "adjacent"),
    ],
)
def test_distances_go_by_the_order_of_the_classes(old: str, new: str, far: str) -> None:
    assert paper.distance(run(3, old=old, new=new)) == far


def test_the_paper_has_48_cells_6_same_12_adjacent_30_far() -> None:
    names = class_names()
    cells = [run(3, old=old, new=new) for old in names for new in names]
    kinds = [paper.distance(cell) for cell in cells if paper.decidable(cell)]
    assert [kinds.count(kind) for kind in paper.DISTANCES] == [6, 12, 30]


# Designs ---------------------------------------------------------------------------------------


def test_the_papers_design_is_every_pair_so_many_times() -> None:
    cases = paper_cases(BEST, 3)
    assert sorted((c.rep, c.old.name) for c in cases) == sorted(
        (rep, name) for rep in range(3) for name in class_names()
    )
    for case in cases:
        assert tuple(ear.name for ear in case.news) == class_names()
        assert case.strategies == paper.STRATEGIES
        assert case.label == "best"
        assert dict(case.old.thresholds_db_hl) == class_median(case.old.name)


def test_names_that_nobody_knows_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown hearing-loss class 'wild'; known: normal, "):
        paper_cases(BEST, classes=("normal", "wild"))
    with pytest.raises(ValueError, match="unknown strategy 'best'; known: differential, "):
        paper_cases(BEST, strategies=("best",))


@pytest.mark.parametrize("twice", [{"classes": ("mild", "mild")}, {"strategies": ("random",) * 2}])
def test_a_name_given_twice_is_refused(twice: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(ValueError, match="twice"):
        paper_cases(BEST, 1, **twice)


def test_every_option_is_tried_once() -> None:
    protocols = paper.option_protocols()
    tried, named = protocols[: -len(PROTOCOLS)], protocols[-len(PROTOCOLS) :]
    settings = [(p.theta_g, p.rho_weights, p.evidence, p.hyperprior_g) for p in tried]
    # 3 x 2 x 3 x 2, less fixed theta_g with Laplace: nothing is fitted there
    assert len(settings) == len(set(settings)) == 32
    assert ("fixed", "prior", "laplace", "population") not in settings
    assert named == list(PROTOCOLS.values())
    assert len({p.name for p in protocols}) == len(protocols)
    cases = paper.option_cases(2)
    assert len({case.key for case in cases}) == len(cases) == len(protocols) * 7 * 2


def test_the_sensitivity_study_changes_one_thing_at_a_time() -> None:
    cases = paper.sensitivity_cases(BEST, 1)
    assert len({case.key for case in cases}) == len(cases)
    usual = paper_cases(BEST, 1, strategies=("differential",), until_right=True)[0]
    by_label = {case.label: case for case in cases if case.old == usual.old}
    changed = {
        label: [
            name
            for name in PaperCase.__dataclass_fields__
            if name != "label" and getattr(case, name) != getattr(usual, name)
        ]
        for label, case in by_label.items()
    }
    assert changed["spread 3 dB"] == changed["lapses 0%, not modelled"] == []
    assert changed["spread 8 dB"] == ["spread_db"]
    assert changed["tone grid audiometer"] == ["domain"]
    assert changed["rough shifts 15%"] == []
    assert changed["rough shifts 25%"] == ["protocol"]
    assert changed["lapses 5%, not modelled"] == ["lapse"]
    assert changed["lapses 5%, modelled"] == ["protocol", "lapse"]
    assert by_label["lapses 5%, modelled"].protocol.lapse == 0.05
    conjoint = {case.label: case for case in paper.sensitivity_cases(PROTOCOLS["paper"], 1)}
    assert conjoint["hyperprior of theta_g, SDs x 4"].protocol.prior_scale == 4.0


def test_a_floor_is_under_the_models_likelihood_alone() -> None:
    cases = paper.floor_cases(PROTOCOLS["paper-vague"], 1)
    assert {(c.protocol.guess, c.protocol.lapse) for c in cases} == {(f, f) for f in paper.FLOORS}
    assert {(case.guess, case.lapse) for case in cases} == {(0.0, 0.0)}
    assert len({case.label for case in cases}) == len(paper.FLOORS)


def test_best_was_one_of_its_candidates() -> None:
    candidates = paper.best_candidates()
    assert BEST in [replace(candidate, name="best") for candidate in candidates]
    assert len({candidate.name for candidate in candidates}) == len(candidates)


HEAD = "SEQN,side,500,1000,2000,3000,4000,6000,8000"


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """Two ears of every class in each half, flat audiograms."""
    lines = [HEAD]
    for number, level in enumerate([10, 20, 35, 50, 65, 85, 100] * 2):
        for person in (2 * number, 2 * number + 1):
            thresholds = ",".join([str(level + person % 2)] * 7)
            lines.append(f"{person},L,{thresholds}")
    path = tmp_path / "ears.csv"
    path.write_text("\n".join(lines))
    return path


def test_real_ears_come_by_half_and_class(people: Path) -> None:
    for half, odd in (("tuning", 0), ("held-back", 1)):
        ears = read_ears(people, half)
        assert tuple(ears) == class_names()[:-1]
        for level, (name, group) in zip((10, 20, 35, 50, 65, 85), ears.items(), strict=True):
            assert [ear.name for ear in group] == [f"{name}:0", f"{name}:1"]
            for ear in group:
                assert [f for f, _ in ear.thresholds_db_hl] == [
                    500, 1000, 2000, 3000, 4000, 6000, 8000
                ]  # fmt: skip
                assert {level for _, level in ear.thresholds_db_hl} == {level + odd}


def test_a_file_that_is_not_of_ears_says_what_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "ears.csv"
    path.write_text("SEQN,500,1000,2000,3000,4000,8000\n1,5,5,5,5,5,5\n")
    with pytest.raises(ValueError, match=r"ears\.csv lacks the columns 6000$"):
        read_ears(path, "tuning")


def test_all_protocols_meet_the_same_real_ears(people: Path) -> None:
    ears = read_ears(people, "tuning")
    cases = paper.ear_cases([BEST, PROTOCOLS["paper"]], ears, reps=5, seed=3)
    best, papers = ([c for c in cases if c.label == label] for label in ("best", "paper"))
    assert [(c.old, c.news, c.rep) for c in best] == [(c.old, c.news, c.rep) for c in papers]
    assert len(best) == 6 * 5
    for case in best:
        assert case.news[0] == case.old
        classes = [paper.class_of(ear.name) for ear in case.news]
        assert sorted(classes) == sorted(ears)
        assert case.until_right
    assert len({case.news for case in best}) > 6  # not always the same ears
    other = paper.ear_cases([BEST], ears, reps=5, seed=4)
    assert [c.news for c in other] != [c.news for c in best]
