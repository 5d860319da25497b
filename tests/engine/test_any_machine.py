"""The same next tone on any machine: linear algebra that rounds otherwise asks the same tones.

OpenBLAS chooses its kernels by the processor; `OPENBLAS_CORETYPE` makes it choose those of another
one, which sum in another order. Every case below runs in a process of its own for each of them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CORES = ("Prescott", "Nehalem", "Haswell", "SkylakeX")
FLAGS = {"Haswell": {"avx2", "fma"}, "SkylakeX": {"avx512f", "avx512dq", "avx512vl"}}

SCRIPT = """
import json, sys
import earshift as es

HZ = (500.0, 1000.0, 2000.0, 3000.0, 4000.0, 6000.0, 8000.0)
OLD = dict(zip(HZ, (10.0, 5.0, 5.0, 5.0, 10.0, 15.0, 10.0)))
NEW = dict(zip(HZ, (15.0, 10.0, 15.0, 25.0, 35.0, 30.0, 20.0)))

def run(procedure, tones, ear, seed):
    listener = es.Listener(ear, seed=seed, lapse=0.02)
    while len(procedure.trials) < tones:
        tone = procedure.ask()
        procedure.tell(tone, listener(tone))
    return procedure

def told(procedure):
    return [str(trial.tone) for trial in procedure.trials] + [str(procedure.ask())]

out = {}
for seed in range(2):
    first = run(es.Exam(seed=seed), 24, OLD, seed)
    clinical = run(es.Exam.clinical(seed=seed), 20, OLD, seed)
    both = run(es.Exam.clinical(ears="both", seed=seed), 14, OLD, seed)
    out[f"exam {seed}"], out[f"clinical {seed}"] = told(first), told(clinical)
    out[f"both ears {seed}"] = told(both)
    for name, reference, protocol in (
        ("best", first, "best"),
        ("best, clinical", clinical, "best"),
        ("best, audiogram", es.Audiogram(OLD), "best"),
        ("best, norm", es.population_norm(), "best"),
        ("best, both ears", both.of("left"), "best"),
        ("paper", first, "paper"),
        ("running", first, es.Protocol(evidence="running", rho_points=6)),
    ):
        for ear in (OLD, NEW):
            screen = run(es.Screen(reference, protocol, seed=seed), 5, ear, seed)
            out[f"{name} {seed} {ear is NEW}"] = told(screen)
    for name, screen in {
        "rule": es.Screen(first, rule="niosh-15", seed=seed),
        "rules": es.Screen(clinical, rules=["osha-sts", "niosh-15"], seed=seed),
        "audiogram": es.Screen(es.Audiogram(OLD), rule="osha-sts", seed=seed),
        "notch": es.Screen(hypotheses="notch", seed=seed),
        "rule, both ears": es.Screen(both, ears="both", rule="osha-sts", seed=seed),
    }.items():
        out[f"{name} {seed}"] = told(run(screen, 8, NEW, seed))
json.dump(out, sys.stdout)
"""


def processor_flags() -> set[str]:
    """What the processor can do, as the system says; nothing where it does not say."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return {flag for line in lines if line.startswith("flags") for flag in line.split()}


def tones(core: str) -> dict[str, list[str]]:
    environment = {**os.environ, "OPENBLAS_CORETYPE": core, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, env=environment
    )
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_other_linear_algebra_asks_the_same_tones() -> None:
    able = processor_flags()
    cores = [core for core in CORES if FLAGS.get(core, set()) <= able]
    first, *others = (tones(core) for core in cores)
    assert others
    for other in others:
        assert other == first
