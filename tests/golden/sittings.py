"""Exams and screens of scripted listeners: every tone, what is saved, and what is said at the end.

`PAPER` has the paper's path: `Exam` and `Screen(protocol=)`. `CLINICAL` has the engine of rules and
notches with the clinic's exam.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

import numpy as np

import earshift as es
from golden.common import plain, without_sentences

Answer = Callable[[Any], bool]

HZ = (500.0, 1000.0, 2000.0, 3000.0, 4000.0, 6000.0, 8000.0)
NORMAL = dict(zip(HZ, (10.0, 5.0, 5.0, 5.0, 10.0, 15.0, 10.0), strict=True))
MILD = dict(zip(HZ, (25.0, 30.0, 40.0, 45.0, 50.0, 60.0, 65.0), strict=True))
NOTCHED = dict(zip(HZ, (10.0, 10.0, 10.0, 30.0, 45.0, 35.0, 15.0), strict=True))
AUDIOGRAM = es.Audiogram(MILD)
SHIFTED = {f: level + (20.0 if f >= 2000.0 else 0.0) for f, level in MILD.items()}
PARTLY = es.Audiogram(
    {500.0: 20.0, 1000.0: 25.0, 2000.0: 35.0, 3000.0: 50.0},
    method_offset_db=2.5,
    no_response_db_hl={4000.0: 90.0, 6000.0: 90.0},
)
DEVICE = es.Limits(
    cap_db_hl=80.0,
    above_reference_db=15.0,
    device=tuple((f, 0.0, 75.0) for f in (500.0, 1000.0, 1500.0, 2000.0, 3000.0, 4000.0)),
)
LOW_CAP = es.Limits(cap_db_hl=50.0)
OWN_TONES = es.Domain.tones((250.0, 500.0, 1000.0, 2000.0, 4000.0), range(0, 91, 10))
CONTRAST = es.Domain(
    intensity=es.Axis("contrast_db", "dB", tuple(np.arange(-50.0, 0.1, 2.5)), -25.0, 10.0),
    smooth=(
        es.Axis(
            "cycles_per_degree", "c/deg", (0.5, 1, 2, 3, 4, 6, 8, 12, 16), 4.0, 1.0,
            logarithmic=True,
        ),
    ),
)  # fmt: skip
DURATION = es.Domain(
    intensity=es.Axis("level_db_hl", "dB HL", tuple(range(-10, 101, 5)), 50.0, 10.0),
    smooth=(
        es.Axis("frequency_hz", "Hz", HZ, 1000.0, 1.0, logarithmic=True),
        es.Axis("duration_ms", "ms", (10.0, 50.0, 200.0, 500.0), 200.0, 2.0, logarithmic=True),
    ),
)
# As stored designs of 0.1.0 have it: by the name of today's `best`, with other settings.
BEST_OF_0_1 = {
    "name": "best",
    "theta_g": "shared",
    "rho_weights": "posterior",
    "evidence": "laplace",
    "hyperprior_g": "reference",
    "prior_scale": 1.0,
    "reading_sd_db": 4.3,
    "rho_points": 10,
    "rho_low": -0.5,
    "rho_high": 0.7,
    "strategy": "differential",
    "bayes_factor": 100.0,
    "prior_changed": 0.5,
    "guess": 0.0,
    "lapse": 0.0,
    "max_tones": 30,
}
OWN_RULE = es.Rule(
    "own", (es.Criterion((3000.0, 4000.0), 15.0, "all"), es.Criterion((1000.0,), 20.0))
)


def one_ear(thresholds: dict[float, float], seed: int, **options: float) -> Callable[[], Answer]:
    return lambda: es.Listener(thresholds, seed=seed, **options)


def two_ears(
    right: dict[float, float], left: dict[float, float], seed: int
) -> Callable[[], Answer]:
    def start() -> Answer:
        ears = {"right": es.Listener(right, seed=seed), "left": es.Listener(left, seed=(seed, 1))}
        return lambda tone: ears[tone.ear](tone)

    return start


def a_rule_of_levels(name: str, threshold: Callable[[Any], float]) -> Callable[[], Answer]:
    """Somebody who always and only reports what is above the threshold, by this axis."""
    return lambda: lambda stimulus: bool(getattr(stimulus, name) >= threshold(stimulus))


def sees(loss_db: float) -> Callable[[], Answer]:
    return a_rule_of_levels(
        "contrast_db",
        lambda s: -42.3 + 3.5 * math.log2(s.cycles_per_degree / 3.0) ** 2 + loss_db,
    )


def hears_long(stimulus: Any) -> float:
    short = 10.0 * max(0.0, math.log10(200.0 / stimulus.duration_ms))
    return 11.3 + 8.0 * math.log2(stimulus.frequency_hz / 500.0) + short


def answered(sitting: Any, answer: Answer, tones: int) -> Any:
    while len(sitting.trials) < tones:
        stimulus = sitting.ask()
        sitting.tell(stimulus, answer(stimulus))
    return sitting


@cache
def first(kind: str) -> Any:
    """A finished exam to refer to. Entries share it, and none changes it."""
    made = {
        "fine": (es.Exam(seed=1, halton_tones=8), one_ear(MILD, 1)),
        "audiometer": (
            es.Exam(seed=2, domain="audiometer", halton_tones=8, guess=0.01, lapse=0.02),
            one_ear(NORMAL, 2),
        ),
        "both": (
            es.Exam(seed=3, ears="both", domain="audiometer", halton_tones=8),
            two_ears(MILD, NORMAL, 3),
        ),
        "clinical": (es.Exam.clinical(seed=4, limits=es.Limits()), one_ear(NORMAL, 4)),
        "contrast": (es.Exam(seed=5, domain=CONTRAST, halton_tones=8), sees(0.0)),
    }
    exam, listener = made[kind]
    return answered(exam, listener(), 24)


@dataclass(frozen=True)
class Scripted:
    """One exam or screen, who answers it, and for how many tones."""

    make: Callable[[], Any]
    listener: Callable[[], Answer]
    tones: int = 14
    silence: dict[int, bool] = field(default_factory=dict)  # silent trials: before tone, reported
    presses: int = 0


def observe(entry: Scripted) -> dict[str, Any]:
    """All that is compared of one exam or screen. The trials are in what is saved."""
    sitting, answer = entry.make(), entry.listener()
    both = isinstance(sitting.to_dict()["design"].get("ears"), str)
    evidence = []
    for number in range(entry.tones):
        if number in entry.silence:
            sitting.tell_catch(entry.silence[number])
        stimulus = sitting.ask()
        sitting.tell(stimulus, answer(stimulus))
        if sitting.kind == "screen" and both:
            evidence.append([sitting.p_changed("right"), sitting.p_changed("left")])
        elif sitting.kind == "screen":
            evidence.append([sitting.log_bf, sitting.p_changed])
    for _ in range(entry.presses):
        sitting.tell_press()
    said = _exam_says if sitting.kind == "exam" else _screen_says
    return plain(
        {
            "next": sitting.ask().to_dict(),
            "evidence": evidence,
            "says": without_sentences(plain({"done": sitting.done, **said(sitting, both)})),
            "saved": sitting.to_dict(),
        }
    )


def _exam_says(exam: Any, both: bool) -> dict[str, Any]:
    if not both:
        return {"thresholds": [asdict(found) for found in exam.thresholds()]}
    return {
        "cross_heard": [trial.to_dict() for trial in exam.cross_heard],
        "thresholds": {ear: [asdict(t) for t in exam.thresholds(ear=ear)] for ear in EARS},
    }


def _screen_says(screen: Any, both: bool) -> dict[str, Any]:
    says = {
        "decision": screen.decision,
        "verdict": screen.verdict().to_dict(),
        "continued": screen.continue_exam().ask().to_dict(),
    }
    if both:
        found = {ear: [asdict(t) for t in screen.thresholds(ear=ear)] for ear in EARS}
        return {**says, "decisions": screen.decisions, "open_ears": screen.open_ears,
                "thresholds": found}  # fmt: skip
    return {
        **says,
        "reliability": screen.reliability,
        "p_changed_after_5": screen.p_changed_after(5),
        "thresholds": [asdict(found) for found in screen.thresholds()],
    }


def read_back(saved: dict[str, Any]) -> Any:
    """An exam or screen from its stored data."""
    return {"exam": es.Exam, "screen": es.Screen}[saved["kind"]].from_dict(saved)


EARS = ("right", "left")
ENDS = {"normal ear": NORMAL, "mild loss": MILD, "shifted": SHIFTED}


def _exams() -> Iterator[tuple[str, Scripted]]:
    yield "exam, as it comes", Scripted(lambda: es.Exam(), one_ear(MILD, 11), 22)
    yield (
        "exam, as it comes, normal ear",
        Scripted(lambda: es.Exam(seed=7), one_ear(NORMAL, 12), 20),
    )
    for strategy in ("bald", "level_set", "uncertainty", "random"):
        for domain in ("fine", "audiometer"):
            yield (
                f"exam by {strategy}, {domain}",
                Scripted(
                    lambda s=strategy, d=domain: es.Exam(
                        seed=3, strategy=s, domain=d, halton_tones=3
                    ),
                    one_ear(MILD, 13),
                ),
            )
    yield (
        "exam, lapses and guesses",
        Scripted(
            lambda: es.Exam(seed=4, halton_tones=0, guess=0.05, lapse=0.05, max_tones=12),
            one_ear(MILD, 14, guess=0.05, lapse=0.05),
        ),
    )
    yield (
        "exam, limits",
        Scripted(lambda: es.Exam(seed=5, halton_tones=5, limits=es.Limits()), one_ear(MILD, 15)),
    )
    yield (
        "exam, limits of a device",
        Scripted(
            lambda: es.Exam(seed=5, halton_tones=5, domain="audiometer", limits=DEVICE),
            one_ear(MILD, 15),
        ),
    )
    yield (
        "exam, the other ear might hear",
        Scripted(
            lambda: es.Exam(
                seed=6, halton_tones=5, other_ear=es.Audiogram(NORMAL), transducer="supra-aural"
            ),
            one_ear(MILD, 16),
        ),
    )
    yield (
        "exam, relative levels",
        Scripted(lambda: es.Exam(seed=8, domain="relative", halton_tones=5), one_ear(MILD, 17)),
    )
    yield (
        "exam, own tones",
        Scripted(lambda: es.Exam(seed=9, domain=OWN_TONES, halton_tones=5), one_ear(MILD, 18)),
    )
    yield "exam, contrast", Scripted(lambda: es.Exam(seed=1, domain=CONTRAST), sees(0.0), 22)
    yield (
        "exam, two smooth axes",
        Scripted(
            lambda: es.Exam(seed=1, domain=DURATION, halton_tones=6),
            a_rule_of_levels("level_db_hl", hears_long),
        ),
    )
    yield (
        "exam of both ears, as it comes",
        Scripted(lambda: es.Exam(ears="both"), two_ears(MILD, NORMAL, 19), 22),
    )
    yield (
        "exam of both ears, limits",
        Scripted(
            lambda: es.Exam(
                ears="both", seed=2, domain="audiometer", halton_tones=4, limits=es.Limits(),
                transducer="insert",
            ),
            two_ears(NORMAL, SHIFTED, 20),
        ),
    )  # fmt: skip
    yield (
        "exam of both ears by level_set",
        Scripted(
            lambda: es.Exam(ears="both", seed=3, strategy="level_set", halton_tones=4),
            two_ears(MILD, MILD, 21),
        ),
    )


def _protocol_screens() -> Iterator[tuple[str, Scripted]]:
    references: dict[str, Callable[[], Any]] = {
        "an exam": lambda: first("fine"),
        "an audiogram": lambda: AUDIOGRAM,
        "a norm": es.population_norm,
    }
    for protocol in ("best", "best-0.1", "paper"):
        for what, reference in references.items():
            for ear, thresholds in ENDS.items():
                yield (
                    f"screen by {protocol} against {what}, {ear}",
                    Scripted(
                        lambda p=protocol, r=reference: es.Screen(r(), p, seed=2),
                        one_ear(thresholds, 22),
                        12,
                    ),
                )
    for what, reference in references.items():
        yield (
            f"screen by best as 0.1.0 stored it, against {what}",
            Scripted(
                lambda r=reference: es.Screen(r(), BEST_OF_0_1, seed=2), one_ear(SHIFTED, 22), 12
            ),
        )
    yield (
        "screen, as it comes, silent trials and presses",
        Scripted(
            lambda: es.Screen(first("audiometer")),
            one_ear(NORMAL, 23),
            silence={2: False, 5: True, 6: True},
            presses=3,
        ),
    )
    yield (
        "screen on another domain than its reference's",
        Scripted(
            lambda: es.Screen(first("fine"), "best", seed=3, domain="audiometer", max_tones=10),
            one_ear(SHIFTED, 24),
        ),
    )
    yield (
        "screen against an audiogram with no responses",
        Scripted(lambda: es.Screen(PARTLY, "best", seed=3, domain="audiometer"), one_ear(MILD, 24)),
    )
    for name, limits in (("device", DEVICE), ("cap", LOW_CAP), ("usual", es.Limits())):
        yield (
            f"screen, limits: {name}",
            Scripted(
                lambda found=limits: es.Screen(
                    AUDIOGRAM, "best", seed=4, domain="audiometer", limits=found
                ),
                one_ear(SHIFTED, 25),
            ),
        )
    yield (
        "screen, the other ear might hear",
        Scripted(
            lambda: es.Screen(
                AUDIOGRAM, "paper", seed=5, other_ear=es.Audiogram(NORMAL), transducer="circumaural"
            ),
            one_ear(SHIFTED, 26),
        ),
    )
    settings: dict[str, dict[str, Any]] = {
        "running evidence": {"evidence": "running"},
        "plug-in evidence": {"evidence": "plug_in", "theta_g": "fixed"},
        "population hyperprior": {"hyperprior_g": "population", "prior_scale": 0.5},
        "reading noise": {"reading_sd_db": 5.5},
        "rates": {"guess": 0.02, "lapse": 0.03, "prior_changed": 0.2, "bayes_factor": 30.0},
        "few correlations": {"theta_g": "shared", "rho_points": 5, "rho_low": 0.0, "rho_high": 0.9},
        **{
            f"strategy {s}": {"strategy": s} for s in ("bald", "level_set", "uncertainty", "random")
        },
    }
    for name, given in settings.items():
        yield (
            f"screen by an own protocol: {name}",
            Scripted(
                lambda g=given: es.Screen(first("fine"), es.Protocol(**g), seed=6),
                one_ear(SHIFTED, 27),
                10,
            ),
        )
    for name, loss in (("same", 0.0), ("worse", 12.0)):
        yield (
            f"screen, contrast, {name}",
            Scripted(lambda: es.Screen(first("contrast"), seed=1), sees(loss), 12),
        )
    yield (
        "screen of both ears against audiograms",
        Scripted(
            lambda: es.Screen(
                {"right": AUDIOGRAM, "left": es.Audiogram(NORMAL)}, "best", ears="both", seed=1
            ),
            two_ears(SHIFTED, NORMAL, 28),
            silence={3: True},
        ),
    )
    yield (
        "screen of both ears against their exam",
        Scripted(
            lambda: es.Screen(first("both"), "paper", ears="both", seed=2, limits=es.Limits()),
            two_ears(MILD, NORMAL, 29),
        ),
    )
    yield (
        "screen of one ear against an exam of both",
        Scripted(lambda: es.Screen(first("both").of("left"), seed=2), one_ear(NORMAL, 30)),
    )


def _clinical_exams() -> Iterator[tuple[str, Scripted]]:
    yield "exam", Scripted(lambda: es.Exam.clinical(), one_ear(MILD, 31), 18)
    yield (
        "exam, limits",
        Scripted(lambda: es.Exam.clinical(seed=2, limits=es.Limits()), one_ear(MILD, 32), 18),
    )
    yield (
        "exam, own settings",
        Scripted(
            lambda: es.Exam.clinical(seed=3, domain="fine", precision_db=8.0, reference=AUDIOGRAM),
            one_ear(MILD, 33),
        ),
    )
    yield (
        "exam of both ears",
        Scripted(lambda: es.Exam.clinical(ears="both", seed=4), two_ears(MILD, NORMAL, 34), 18),
    )


def _rule_screens() -> Iterator[tuple[str, Scripted]]:
    references: dict[str, Callable[[], Any]] = {
        "an exam": lambda: first("fine"),
        "a clinical exam": lambda: first("clinical"),
        "an audiogram": lambda: AUDIOGRAM,
        "a norm": es.population_norm,
    }
    for rule in ("osha-sts", "niosh-15"):
        for what, reference in references.items():
            for ear, thresholds in ENDS.items():
                yield (
                    f"screen by {rule} against {what}, {ear}",
                    Scripted(
                        lambda u=rule, r=reference: es.Screen(
                            r(), rule=u, seed=2, domain="audiometer"
                        ),
                        one_ear(thresholds, 35),
                        12,
                    ),
                )
    yield (
        "screen by msha-sts, fine",
        Scripted(lambda: es.Screen(first("fine"), rule="msha-sts", seed=3), one_ear(SHIFTED, 36)),
    )
    yield (
        "screen by a rule that is not verified",
        Scripted(
            lambda: es.Screen(
                AUDIOGRAM, rule="asha-1994", allow_unverified=True, seed=3, domain="audiometer"
            ),
            one_ear(SHIFTED, 37),
        ),
    )
    yield (
        "screen by an own rule",
        Scripted(
            lambda: es.Screen(AUDIOGRAM, rule=OWN_RULE, seed=4, domain="audiometer"),
            one_ear(SHIFTED, 38),
            silence={1: True, 4: True},
        ),
    )
    yield (
        "screen by a rule, another device",
        Scripted(
            lambda: es.Screen(
                AUDIOGRAM,
                rule="osha-sts",
                domain="audiometer",
                seed=5,
                settings=es.RuleSettings(device_offset_sd_db=3.0),
            ),
            one_ear(SHIFTED, 39),
        ),
    )
    yield (
        "screen by a rule, limits and the other ear",
        Scripted(
            lambda: es.Screen(
                PARTLY, rule="osha-sts", seed=6, domain="audiometer", limits=DEVICE,
                other_ear=es.Audiogram(NORMAL), transducer="supra-aural",
            ),
            one_ear(MILD, 40),
        ),
    )  # fmt: skip
    yield (
        "screen of both ears by a rule against audiograms",
        Scripted(
            lambda: es.Screen(
                {"right": AUDIOGRAM, "left": es.Audiogram(NORMAL)},
                ears="both", rule="osha-sts", seed=1, domain="audiometer", limits=es.Limits(),
            ),
            two_ears(SHIFTED, NORMAL, 41),
            18,
        ),
    )  # fmt: skip
    yield (
        "screen of both ears by a rule against their exam",
        Scripted(
            lambda: es.Screen(first("both"), ears="both", rule="niosh-15", seed=2, max_tones=16),
            two_ears(MILD, NORMAL, 42),
        ),
    )


def _several_questions() -> Iterator[tuple[str, Scripted]]:
    limit = es.ThresholdRule("45 dB at 2 kHz", [es.Criterion((2000.0,), 45.0)])
    yield (
        "screen by two rules",
        Scripted(
            lambda: es.Screen(
                AUDIOGRAM, rules=["osha-sts", "niosh-15"], seed=7, domain="audiometer"
            ),
            one_ear(SHIFTED, 45),
            silence={2: False},
            presses=1,
        ),
    )
    yield (
        "screen by a rule for the better",
        Scripted(
            lambda: es.Screen(AUDIOGRAM, rule="osha-sts improvement", seed=8, domain="audiometer"),
            one_ear(NORMAL, 46),
        ),
    )
    yield (
        "screen by a limit",
        Scripted(lambda: es.Screen(rule=limit, seed=9, domain="audiometer"), one_ear(MILD, 47)),
    )


def _notch_screens() -> Iterator[tuple[str, Scripted]]:
    for what, reference in {"nobody known": None, "an audiogram": AUDIOGRAM}.items():
        for ear, thresholds in {**ENDS, "notch": NOTCHED}.items():
            yield (
                f"screen for a notch, {what}, {ear}",
                Scripted(
                    lambda r=reference: es.Screen(r, hypotheses="notch", seed=2, domain="fine"),
                    one_ear(thresholds, 43),
                    12,
                ),
            )
    yield (
        "screen for a notch, limits",
        Scripted(
            lambda: es.Screen(hypotheses="notch", seed=3, domain="audiometer", limits=es.Limits()),
            one_ear(NOTCHED, 44),
        ),
    )


PAPER: dict[str, Scripted] = dict([*_exams(), *_protocol_screens()])
CLINICAL: dict[str, Scripted] = dict(
    [*_clinical_exams(), *_rule_screens(), *_several_questions(), *_notch_screens()]
)
