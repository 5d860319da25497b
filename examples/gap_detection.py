"""One psychometric function with two alternatives: the shortest gap that is heard in a noise.

Two noises are played, one with a gap; the listener says which. Whoever hears nothing is right half
of the time. A domain without a smooth axis has a single psychometric function. Run it as
`python examples/gap_detection.py PICTURE.png`.
"""

import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.special import ndtr

import earshift as es
from earshift.simulate.run import run

DOMAIN = es.Domain(
    es.Axis("gap_ms", "ms", [2.0 ** (1 + k / 4) for k in range(21)], logarithmic=True)
)
# A threshold of 8 ms, give or take an octave; answers turn over about half an octave.
PRIOR = es.Prior(threshold=8.0, threshold_sd=1.0, spread=0.5, lapse=(1, 20))


@dataclass
class Listener:
    """Hears gaps from about its threshold on; presses a wrong button now and then."""

    seed: int
    threshold_ms: float = 6.0
    spread_octaves: float = 0.4
    lapse: float = 0.02

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def __call__(self, stimulus: es.Stimulus) -> bool:
        z = math.log2(stimulus.gap_ms / self.threshold_ms) / self.spread_octaves
        return bool(self.rng.random() < 0.5 + (0.5 - self.lapse) * ndtr(z))


def measure(listener: Listener, trials: int = 80, lapse: float | str = 0.02) -> es.Exam:
    """The exam: told the lapse rate, or asked to estimate it."""
    exam = es.Exam(
        domain=DOMAIN, prior=PRIOR, guess=0.5, lapse=lapse, seed=listener.seed, max_tones=trials
    )
    return run(exam, listener)


def main(path: Path) -> es.Exam:
    exam = measure(Listener(seed=1))
    figure = Figure(figsize=(9.0, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    exam.plot(left)
    exam.psychometric().plot(right)
    figure.savefig(path, dpi=140)
    return exam


if __name__ == "__main__":
    print(main(Path(sys.argv[1])).psychometric())
