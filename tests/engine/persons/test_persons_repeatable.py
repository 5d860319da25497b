"""The same answers ask the same tones on every kind of processor."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import numpy as np
from earshift.engine.persons import reference
from earshift.engine.persons.design import Design
from earshift.engine.persons.people import Newcomer, Returning
from earshift.engine.persons.posterior import Posterior
from earshift.engine.persons.questions import RuleMet
from earshift.engine.rules import RULES
from earshift.engine.tone import Tone, Trial

nodes = (500.0, 1000.0, 2000.0, 3000.0, 4000.0, 6000.0, 8000.0)
then = dict(zip(nodes, (10, 10, 15, 20, 30, 35, 30)))
earlier = reference.from_audiograms([reference.Readings(then)], nodes, seed=1)
rng = np.random.default_rng(1)
for design in (
    Design(Returning(earlier), (RuleMet(RULES["niosh-15"]),), seed=3, persons=800),
    Design(Newcomer(nodes), seed=3, persons=800),
):
    state = Posterior.before_any(design)
    for _ in range(12):
        place, level = state.best()
        tone = Tone(design.frequencies_hz[place], design.levels_db[level])
        heard = bool(then[tone.frequency_hz] + 4 * rng.standard_normal() < tone.level_db_hl)
        state = state.after(Trial(tone, heard))
        print(tone)
"""


def tones_on(processor):
    environment = {**os.environ, "OPENBLAS_CORETYPE": processor, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


@pytest.mark.slow
def test_the_same_tones_on_three_processors():
    first, second, third = (tones_on(name) for name in ("Prescott", "Nehalem", "Haswell"))
    assert len(first) == 24
    assert first == second == third
