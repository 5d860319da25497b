"""What several test files need: ears, exams run on them, and tones in model units."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

import earshift as es
from earshift.engine import ep, kernels
from earshift.engine.answers import Answers
from earshift.engine.evidence import Rates, empty_sites, no_reference
from earshift.engine.field import Field
from earshift.engine.optimise import evidence_at
from earshift.simulate.run import run

Array = NDArray[np.float64]

# Real audiograms lie beside the project where it is developed, CI included; they do not ship.
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no audiogram data at {DATA}")
Sitting = TypeVar("Sitting", es.Exam, es.Screen)

HZ = (500.0, 1000.0, 2000.0, 3000.0, 4000.0, 6000.0, 8000.0)
NORMAL = dict(zip(HZ, (10.0, 5.0, 5.0, 5.0, 10.0, 15.0, 10.0), strict=True))
MILD = dict(zip(HZ, (25.0, 30.0, 40.0, 45.0, 50.0, 60.0, 65.0), strict=True))


def run_exam(
    procedure: Sitting, ear: Mapping[float, float], tones: int, seed: int = 0, lapse: float = 0.0
) -> Sitting:
    """Ask and answer until that many tones were told, whether the procedure is done or not."""
    listener = es.Listener(ear, seed=seed, lapse=lapse)
    return run(procedure, listener, tones - len(procedure.trials))


def tell_all(procedure: Sitting, trials: Iterable[es.Trial]) -> Sitting:
    """Tell recorded trials."""
    for trial in trials:
        procedure.tell(trial.tone, trial.heard)
    return procedure


def model_units(frequency_hz: Sequence[float], level_db_hl: Sequence[float]) -> tuple[Array, Array]:
    """Octaves re 1 kHz and tens of dB re 50 dB HL, written out again: the tests' own conversion."""
    return np.log2(np.array(frequency_hz) / 1000.0), (np.array(level_db_hl) - 50.0) / 10.0


def answers(phi: Array, i: Array, heard: Sequence[bool] | NDArray[np.bool_]) -> Answers:
    """Rows for the engine. phi is (n,) for one smooth axis or (n, P)."""
    places = phi if phi.ndim == 2 else phi[:, None]
    return Answers.of(
        places=[tuple(row) for row in places],
        intensities=list(i),
        answers=[ep.HEARD if yes else ep.MISSED for yes in heard],
        axes=places.shape[1],
    )


def tone_covariance(theta: Sequence[float], phi: Array, i: Array) -> Array:
    """alpha i i' + beta exp(-|phi - phi'|^2 / 2 l^2) over trials, by numpy alone."""
    theta = np.asarray(theta)
    phi = np.asarray(phi).reshape(len(i), -1)
    lengths = np.exp(theta[3:])
    scaled = (phi[:, None, :] - phi[None, :, :]) / lengths
    smooth = np.exp(theta[2] - 0.5 * (scaled**2).sum(axis=2))
    return np.exp(theta[1]) * np.outer(i, i) + smooth


def rows_to_latent(place: NDArray[np.int64], i: Array, n_places: int) -> Array:
    """U of f = U z for the latent vector z = (w, h_1 .. h_F)."""
    U = np.zeros((len(i), n_places + 1))
    U[:, 0] = i
    U[np.arange(len(i)), place + 1] = 1.0
    return U


def draw_theta(rng: np.random.Generator, axes: int = 1) -> Array:
    """A plausible theta, whatever the package's hyperprior is today."""
    mean = np.array([5.0, 1.8, 1.8] + [-0.5] * axes)
    sd = np.array([4.0, 0.7, 1.0] + [0.5] * axes)
    return rng.normal(mean, sd)


def gaps_of(places: Array, others: Array) -> Array:
    return kernels.squared_gaps(np.ascontiguousarray(places), np.ascontiguousarray(others))


def numeric_gradient(function: Callable[[Array], float], at: Array, step: float = 1e-5) -> Array:
    """Central differences of a scalar function."""
    at = np.asarray(at, dtype=float)
    grad = np.empty(at.shape)
    for k in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[k] += step
        down[k] -= step
        grad[k] = (function(up) - function(down)) / (2.0 * step)
    return grad


def field_evidence(
    theta: Array,
    rows: Answers,
    reference: Field | None = None,
    rho: float = 0.0,
    guess: float = 0.0,
    lapse: float = 0.0,
    between_ears: float = 0.0,
) -> tuple[float, Array, bool]:
    """log p(answers | theta, rho, reference), its gradient in theta, and whether EP settled."""
    theta = np.asarray(theta, dtype=float)
    tied_to = (
        no_reference(theta, 0.0, rows.places)
        if reference is None
        else reference.as_reference(rows.places)
    )
    log_Z, grad, _, _, settled = evidence_at(
        theta, rho, tied_to, rows.rows(between_ears), Rates(guess, lapse).chances,
        empty_sites(rows.count), 1e-10,
    )  # fmt: skip
    return float(log_Z), grad, bool(settled)
