"""Contrast sensitivity: an eye is measured once, then screened for a change with a few gratings.

The same engine as for tones on other axes: contrast in dB (the intensity) over spatial frequency.
A simulated observer answers. Run it as `python examples/contrast_sensitivity.py PICTURE.png`.
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
    intensity=es.Axis("contrast_db", "dB", np.arange(-50.0, 0.1, 2.5)),
    smooth=(
        es.Axis(
            "cycles_per_degree", "c/deg", (0.5, 1, 2, 3, 4, 6, 8, 12, 16), logarithmic=True
        ),
    ),
)  # fmt: skip
# What is known of eyes before one is measured: in dB, and octaves of spatial frequency.
PRIOR = es.Prior(threshold=-30.0, threshold_sd=8.0, variation=10.0, spread=3.0, length=1.5)


@dataclass
class Observer:
    """Sees a grating above its contrast threshold, best at 3 cycles per degree.

    `loss_db` is lost at high spatial frequencies, as behind a lens that has begun to cloud.
    """

    seed: int
    loss_db: float = 0.0
    best_db: float = -42.0
    peak: float = 3.0
    bend_db: float = 3.5
    spread_db: float = 3.0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def threshold_db(self, cycles_per_degree: float) -> float:
        octaves = math.log2(cycles_per_degree / self.peak)
        lost = self.loss_db / (1.0 + math.exp(-3.0 * octaves))
        return self.best_db + self.bend_db * octaves**2 + lost

    def __call__(self, grating: es.Stimulus) -> bool:
        above = grating.contrast_db - self.threshold_db(grating.cycles_per_degree)
        z = above / self.spread_db
        return bool(self.rng.random() < ndtr(z))


def measure(observer: Observer, gratings: int = 60) -> es.Exam:
    """The first exam."""
    return run(es.Exam(domain=DOMAIN, prior=PRIOR, seed=1, max_tones=gratings), observer)


def screen(reference: es.Exam, observer: Observer) -> es.Screen:
    """Has this eye changed since?"""
    return run(es.Screen(reference, seed=1), observer)


def picture(first: es.Exam, screens: dict[str, tuple[es.Screen, Observer]], path: Path) -> None:
    """Sensitivity (minus the threshold) at the first exam and now, with the truth dotted."""
    figure = Figure(figsize=(9.0, 4.2), layout="constrained")
    panels = figure.subplots(1, len(screens), sharey=True)
    for axes, (name, (screened, observer)) in zip(panels, screens.items(), strict=True):
        for points, style, label in (
            (first.thresholds(), "s--", "first exam (95 % band)"),
            (screened.thresholds(), "o-", "now (95 % band)"),
        ):
            at = [dict(point.place)["cycles_per_degree"] for point in points]
            (line,) = axes.plot(at, [-p.level for p in points], style, label=label, markersize=4)
            axes.fill_between(
                at, [-p.low for p in points], [-p.high for p in points],
                color=line.get_color(), alpha=0.15, linewidth=0,
            )  # fmt: skip
        truth = [-observer.threshold_db(f) for f in DOMAIN.smooth[0].values]
        axes.plot(DOMAIN.smooth[0].values, truth, ":", color="black", label="truth now")
        verdict = screened.verdict()
        axes.set_title(f"{name}: {verdict.decision}, {verdict.tones} gratings", fontsize=10)
        axes.set_xscale("log", base=2)
        axes.set_xticks([0.5, 1, 2, 4, 8, 16], ["0.5", "1", "2", "4", "8", "16"])
        axes.set_xlabel("spatial frequency (cycles per degree)")
    panels[0].set_ylabel("contrast sensitivity (dB)")
    panels[0].legend(fontsize=8)
    figure.savefig(path, dpi=140)


def main(path: Path) -> dict[str, es.Verdict]:
    first = measure(Observer(seed=1))
    screens = {}
    for name, loss_db in (("the same eye", 0.0), ("an eye that lost 15 dB", 15.0)):
        observer = Observer(seed=2, loss_db=loss_db)
        screens[name] = (screen(first, observer), observer)
    picture(first, screens, path)
    return {name: screened.verdict() for name, (screened, _) in screens.items()}


if __name__ == "__main__":
    for eye, verdict in main(Path(sys.argv[1])).items():
        print(f"{eye}: {verdict}")
        for shift in verdict.shifts:
            print(
                f"  {dict(shift.place)} {shift.shift:+.0f} dB [{shift.low:+.0f}, {shift.high:+.0f}]"
            )
