"""Time the two nearest peers, AEPsych and GPy, on the same trials as earshift.

Run it with the peers' own Python (see peers-requirements.txt), not with earshift's:

    python peers.py TRIALS.json

TRIALS.json holds `trials` (frequency_hz, level_db_hl, heard) and `theta` (c, alpha, beta, l). One
JSON object goes to stdout, progress to stderr. A peer that is not installed is reported as null,
because the two may have to live in separate environments.

- AEPsych: one ask, i.e. tell the last trial, refit from scratch, choose the next tone.
- GPy: one EP run at fixed hyperparameters, and the log evidence it arrives at.

Both on one thread; imports and one warm-up are not counted. Beside the wall clock the CPU time is
given: where the two differ, something else was using the machine.
"""

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import logging
import math
import os
import platform
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ASK_REPEATS = 7
EP_REPEATS = 21
THREAD_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

# Everything not named here is AEPsych's default: RBF kernel, constant mean, up to 100 inducing
# points, 1024 Monte Carlo samples, 10 restarts from 1024 raw candidates.
AEPSYCH_CONFIG = """
[common]
parnames = [level_db_hl, octave]
outcome_types = [binary]
stimuli_per_trial = 1
strategy_names = [bald]

[level_db_hl]
par_type = continuous
lower_bound = -10
upper_bound = 100

[octave]
par_type = continuous
lower_bound = -1
upper_bound = 3

[bald]
min_asks = 100
refit_every = 1
generator = OptimizeAcqfGenerator
model = GPClassificationModel

[OptimizeAcqfGenerator]
acqf = BernoulliMCMutualInformation
"""


def octave(frequency_hz: float) -> float:
    """Octaves above 1 kHz."""
    return math.log2(frequency_hz / 1000)


def seconds(run: Callable[[], object]) -> tuple[float, float]:
    """Wall clock and CPU time of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


def summary(times: list[tuple[float, float]]) -> dict[str, Any]:
    """Medians of the wall clock and CPU times, and the wall clock's range."""
    wall, cpu = zip(*times, strict=True)
    return {
        "seconds_median": statistics.median(wall),
        "seconds_min": min(wall),
        "seconds_max": max(wall),
        "cpu_seconds_median": statistics.median(cpu),
        "repeats": len(times),
    }


def versions(*packages: str) -> dict[str, str]:
    """The installed version of each package."""
    return {name: importlib.metadata.version(name) for name in packages}


def progress(message: str) -> None:
    """Say something to the person waiting."""
    print(message, file=sys.stderr, flush=True)


def time_aepsych(trials: list[dict[str, Any]]) -> dict[str, Any]:
    """Time from the last answer to the next tone, through AEPsych's own strategy object."""
    import torch
    from aepsych.config import Config
    from aepsych.strategy import SequentialStrategy

    logging.disable(logging.CRITICAL)  # AEPsych logs every fit
    torch.set_num_threads(1)
    levels_octaves = [[t["level_db_hl"], octave(t["frequency_hz"])] for t in trials]
    x = torch.tensor(levels_octaves, dtype=torch.float64)
    y = torch.tensor([t["heard"] for t in trials], dtype=torch.float64)

    def ask(seed: int) -> tuple[float, float]:
        torch.manual_seed(seed)
        strategy = SequentialStrategy.from_config(Config(config_str=AEPSYCH_CONFIG))
        strategy.add_data(x[:-1], y[:-1])
        tone: list[float] = []

        def tell_and_ask() -> None:
            strategy.add_data(x[-1:], y[-1:])
            tone.extend(strategy.gen(1).flatten().tolist())

        took = seconds(tell_and_ask)
        progress(f"AEPsych ask {seed}: {took[0]:.2f} s, {tone[0]:.1f} dB HL, octave {tone[1]:.2f}")
        return took

    ask(0)
    times = [ask(seed) for seed in range(1, ASK_REPEATS + 1)]
    return {"versions": versions("aepsych", "botorch", "torch", "numpy"), "ask": summary(times)}


def time_gpy(trials: list[dict[str, Any]], theta: dict[str, float]) -> dict[str, Any]:
    """Time of one EP run from a cold start, at GPy's default tolerance."""
    import GPy
    import numpy as np
    from GPy.inference.latent_function_inference.expectation_propagation import EP
    from paramz import ObsAr

    x = np.array([[octave(t["frequency_hz"]), (t["level_db_hl"] - 50) / 10] for t in trials])
    y = ObsAr(np.array([[float(t["heard"])] for t in trials]))
    smooth = GPy.kern.RBF(1, variance=theta["beta"], lengthscale=theta["l"], active_dims=[0])
    kernel = smooth + GPy.kern.Linear(1, variances=theta["alpha"], active_dims=[1])
    mean = GPy.mappings.Constant(2, 1, value=theta["c"])
    likelihood = GPy.likelihoods.Bernoulli()
    # Without the reset a second call would start from the first one's solution.
    ep = EP(ep_mode="nested", always_reset=True)
    np.random.seed(0)  # GPy visits the sites in the global generator's order

    def run() -> float:
        return float(ep.inference(kernel, x, likelihood, y, mean_function=mean)[1])

    log_evidence = run()
    times = [seconds(run) for _ in range(EP_REPEATS)]
    progress(f"GPy EP: log evidence {log_evidence:.6f}")
    return {
        "versions": versions("GPy", "numpy"),
        "ep": summary(times),
        "epsilon": ep.epsilon,
        "log_evidence": log_evidence,
    }


def main() -> None:
    """Time every peer that is installed and print the report."""
    parser = argparse.ArgumentParser(description="Time AEPsych and GPy on a file of trials.")
    parser.add_argument("trials", type=Path, help="JSON file with trials and theta")
    data = json.loads(parser.parse_args().trials.read_text(encoding="utf-8"))
    warnings.simplefilter("ignore")
    # Read once, when the numerical libraries are first imported: the reason for the late imports.
    os.environ |= dict.fromkeys(THREAD_LIMITS, "1")
    report: dict[str, Any] = {
        "n_trials": len(data["trials"]),
        "python": platform.python_version(),
        "aepsych": None,
        "gpy": None,
    }
    # Stdout is for the JSON alone, and AEPsych makes a folder of logs where it is run.
    with (
        contextlib.redirect_stdout(sys.stderr),
        tempfile.TemporaryDirectory() as scratch,
        contextlib.chdir(scratch),
    ):
        if importlib.util.find_spec("aepsych"):
            report["aepsych"] = time_aepsych(data["trials"])
        if importlib.util.find_spec("GPy"):
            report["gpy"] = time_gpy(data["trials"], data["theta"])
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
