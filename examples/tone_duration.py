"""Thresholds over two smooth axes: the frequency and the duration of a tone.

Short tones must be louder to be heard. A simulated listener answers tones of 10 to 500 ms; the
exam learns the whole surface at once, each axis with a length of its own. Run it as
`python examples/tone_duration.py PICTURE.png`.
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

FREQUENCIES_HZ = (500.0, 1000.0, 2000.0, 4000.0, 8000.0)
DURATIONS_MS = (10.0, 20.0, 50.0, 100.0, 200.0, 500.0)

DOMAIN = es.Domain(
    intensity=es.Axis("level_db_hl", "dB HL", range(-10, 101, 5)),
    smooth=(
        es.Axis("frequency_hz", "Hz", FREQUENCIES_HZ, logarithmic=True),
        es.Axis("duration_ms", "ms", DURATIONS_MS, logarithmic=True),
    ),
)
# Thresholds in dB HL; lengths in octaves: they change more slowly with duration.
PRIOR = es.Prior(
    threshold=30.0, threshold_sd=20.0, variation=12.0, spread=3.0, length=(1.5, 3.0)
)  # fmt: skip


@dataclass
class Listener:
    """A sloping loss, and more for every tenth of the duration below 200 ms."""

    seed: int
    first_db: float = 10.0
    per_octave_db: float = 8.0
    per_tenth_db: float = 10.0
    spread_db: float = 3.0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def threshold_db(self, frequency_hz: float, duration_ms: float) -> float:
        octaves = math.log2(frequency_hz / 500.0)
        short = max(0.0, math.log10(200.0 / duration_ms))
        return self.first_db + self.per_octave_db * octaves + self.per_tenth_db * short

    def __call__(self, tone: es.Stimulus) -> bool:
        above = tone.level_db_hl - self.threshold_db(tone.frequency_hz, tone.duration_ms)
        return bool(self.rng.random() < ndtr(above / self.spread_db))


def measure(tones: int = 80, seed: int = 1) -> es.Exam:
    """The exam."""
    return run(es.Exam(domain=DOMAIN, prior=PRIOR, seed=seed, max_tones=tones), Listener(seed))


def picture(exam: es.Exam, path: Path) -> None:
    """One audiogram for every other duration, with the truth dotted."""
    figure = Figure(figsize=(9.0, 4.2), layout="constrained")
    durations = DURATIONS_MS[::2]
    panels = figure.subplots(1, len(durations), sharey=True)
    for axes, duration in zip(panels, durations, strict=True):
        points = exam.thresholds([(f, duration) for f in FREQUENCIES_HZ])
        axes.fill_between(
            FREQUENCIES_HZ, [p.low for p in points], [p.high for p in points], alpha=0.2
        )
        axes.plot(FREQUENCIES_HZ, [p.level for p in points], "o-", label="estimate (95 % band)")
        truth = [Listener(0).threshold_db(f, duration) for f in FREQUENCIES_HZ]
        axes.plot(FREQUENCIES_HZ, truth, ":", color="black", label="truth")
        axes.set_title(f"tones of {duration:g} ms", fontsize=10)
        axes.set_xscale("log", base=2)
        axes.set_xticks(FREQUENCIES_HZ, [f"{f:g}" for f in FREQUENCIES_HZ])
        axes.set_xlabel("frequency (Hz)")
    panels[0].set_ylim(70.0, -10.0)
    panels[0].set_ylabel("threshold (dB HL)")
    panels[0].legend(fontsize=8, loc="upper right")
    figure.savefig(path, dpi=140)


def errors_db(exam: es.Exam) -> list[float]:
    """Estimate minus truth at every place of the domain."""
    out = []
    for point in exam.thresholds():
        where = dict(point.place)
        truth = Listener(0).threshold_db(where["frequency_hz"], where["duration_ms"])
        out.append(point.level - truth)
    return out


def main(path: Path) -> es.Exam:
    exam = measure()
    picture(exam, path)
    return exam


if __name__ == "__main__":
    done = main(Path(sys.argv[1]))
    rms = float(np.sqrt(np.mean(np.array(errors_db(done)) ** 2)))
    print(f"{len(done.trials)} tones over {DOMAIN.shape[0]} places: RMS error {rms:.1f} dB")
