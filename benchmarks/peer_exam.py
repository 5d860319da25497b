"""A first exam by AEPsych: its Gaussian process and BALD, tones out and answers in as JSON lines.

Run by `peer_exams.py` with the peers' own Python (see peers-requirements.txt):

    python peer_exam.py SEED TONES MARK,MARK,... HZ,HZ,...

Each line on stdout is a tone, `{"frequency_hz": ..., "level_db_hl": ...}`; the answer is read as
`true` or `false`. After each mark a line `{"tones": n, "low": [...], "middle": [...], "high":
[...]}` has the thresholds in dB HL with their 95 % intervals.
"""

import contextlib
import json
import logging
import os
import sys
import tempfile
import warnings

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

from peers import AEPSYCH_CONFIG, octave

LOOK_AROUND = """
[look_around]
min_asks = 5
generator = SobolGenerator
"""


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    import numpy as np
    import torch
    from aepsych.config import Config
    from aepsych.strategy import SequentialStrategy
    from scipy.special import ndtr

    torch.set_num_threads(1)
    seed, tones = int(sys.argv[1]), int(sys.argv[2])
    marks = [int(n) for n in sys.argv[3].split(",")]
    frequencies = [float(f) for f in sys.argv[4].split(",")]
    torch.manual_seed(seed)
    config = AEPSYCH_CONFIG.replace("[bald]", "[look_around, bald]", 1) + LOOK_AROUND
    strategy = SequentialStrategy.from_config(Config(config_str=config))
    levels = torch.arange(-10.0, 100.5, 1.0, dtype=torch.float64)

    def thresholds() -> list[list[float]]:
        """Thresholds by the latent mean, and by 1.96 SD above and below it: by frequency."""
        found = []
        for f in frequencies:
            places = torch.full_like(levels, octave(f))
            mean, variance = strategy.predict(torch.stack([levels, places], dim=1))
            mean, sd = (x.detach().numpy() for x in (mean, variance.sqrt()))
            found.append([rise(latent) for latent in (mean + 1.96 * sd, mean, mean - 1.96 * sd)])
        return np.array(found).T.tolist()

    def rise(latent: np.ndarray) -> float:
        """The level that best parts "missed" below from "heard" above.

        Far from all tones the mean goes back to its constant, so it may cross zero several times.
        """
        heard = ndtr(latent)
        below = np.concatenate([[0.0], np.cumsum(heard)])
        above = np.concatenate([np.cumsum((1.0 - heard)[::-1])[::-1], [0.0]])
        return float(levels[min(int((below + above).argmin()), len(levels) - 1)])

    for number in range(1, tones + 1):
        level, place = strategy.gen(1).flatten().tolist()
        say({"frequency_hz": 1000.0 * 2.0**place, "level_db_hl": level})
        heard = json.loads(sys.stdin.readline())
        point = torch.tensor([[level, place]], dtype=torch.float64)
        strategy.add_data(point, torch.tensor([float(heard)], dtype=torch.float64))
        if number in marks:
            low, middle, high = thresholds()
            say({"tones": number, "low": low, "middle": middle, "high": high})


def say(message: dict[str, object]) -> None:
    print(json.dumps(message), file=sys.__stdout__, flush=True)


if __name__ == "__main__":
    # Stdout is for the JSON alone, and AEPsych makes a folder of logs where it is run.
    with (
        contextlib.redirect_stdout(sys.stderr),
        tempfile.TemporaryDirectory() as scratch,
        contextlib.chdir(scratch),
    ):
        main()
