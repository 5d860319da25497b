"""Thresholds over two smooth axes: the frequency and the duration of a tone.

Short tones must be louder to be heard. A simulated listener answers tones of 10 to 500 ms; the
exam learns the whole surface at once, each axis with a length of its own. Run it as
`python examples/tone_duration.py PICTURE.png`.
"""

import math
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.special import ndtr

import earshift as es

SPREAD_DB = 3.0
FREQUENCIES_HZ = (500.0, 1000.0, 2000.0, 4000.0, 8000.0)
DURATIONS_MS = (10.0, 20.0, 50.0, 100.0, 200.0, 500.0)

DOMAIN = es.Domain(
    intensity=es.Axis("level_db_hl", "dB HL", tuple(range(-10, 101, 5)), 50.0, 10.0),
    smooth=(
        es.Axis("frequency_hz", "Hz", FREQUENCIES_HZ, 1000.0, 1.0, logarithmic=True),
        # An octave of duration counts for half an octave of frequency: thresholds change slowly.
        es.Axis("duration_ms", "ms", DURATIONS_MS, 200.0, 2.0, logarithmic=True),
    ),
)


def threshold_db(frequency_hz: float, duration_ms: float) -> float:
    """A sloping loss, and 10 dB more for every tenth of the duration below 200 ms."""
    octaves = math.log2(frequency_hz / 500.0)
    return 10.0 + 8.0 * octaves + 10.0 * max(0.0, math.log10(200.0 / duration_ms))


def measure(tones: int = 80, seed: int = 1) -> es.Exam:
    """The exam: a listener with these thresholds answers."""
    rng = np.random.default_rng(seed)
    exam = es.Exam(domain=DOMAIN, seed=seed, max_tones=tones)
    while not exam.done:
        tone = exam.ask()
        z = (tone.level_db_hl - threshold_db(tone.frequency_hz, tone.duration_ms)) / SPREAD_DB
        exam.tell(tone, bool(rng.random() < ndtr(z)))
    return exam


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
        truth = [threshold_db(f, duration) for f in FREQUENCIES_HZ]
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
        out.append(point.level - threshold_db(where["frequency_hz"], where["duration_ms"]))
    return out


def main(path: Path) -> es.Exam:
    exam = measure()
    picture(exam, path)
    return exam


if __name__ == "__main__":
    done = main(Path(sys.argv[1]))
    rms = float(np.sqrt(np.mean(np.array(errors_db(done)) ** 2)))
    print(f"{len(done.trials)} tones over {DOMAIN.shape[0]} places: RMS error {rms:.1f} dB")
