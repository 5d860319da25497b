"""How a person answers a tone, given threshold and spread: the model's only likelihood.

While attentive, P(heard) = guess + (1 - guess - lapse) Phi((level - threshold) / spread); while
not, P(heard) = guess. Attention is a chain of two states, summed over exactly for every person. The
rates of guesses and lapses belong to the test and are not known: guesses are summed over as
well, lapses are drawn with the person.

Somebody who does not listen at all answers at a rate that has nothing to do with the tones.

A task with n alternatives is the same model with another guess rate: `forced_choice(n)`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, ndtr

Array = NDArray[np.float64]

_RESCALE_EVERY = 16  # tones: products of more probabilities than this could leave floating point


@dataclass(frozen=True)
class AnswerModel:
    """The rates of a test and how attention comes and goes."""

    guesses: tuple[float, ...] = (0.01, 0.04, 0.10)
    guess_weights: tuple[float, ...] = (0.7, 0.2, 0.1)
    lapses: tuple[float, ...] = (0.01, 0.03, 0.08)
    lapse_weights: tuple[float, ...] = (0.4, 0.4, 0.2)
    off_at_start: float = 0.03
    goes_off: float = 0.02  # from one tone to the next
    comes_back: float = 0.3
    idle_prior: float = 0.02  # P(somebody does not listen)
    idle_rate: float | None = None  # at which they answer; None: unknown, uniform
    late_presses: float = 0.05  # of a gap between tones: a press that belongs to the tone before
    _guess: Array = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_guess", np.array(self.guesses)[:, None])

    def draw_lapse(self, rng: np.random.Generator, count: int) -> Array:
        return np.asarray(rng.choice(np.array(self.lapses), count, p=np.array(self.lapse_weights)))

    def at_start(self, count: int) -> Array:
        """Mass of every person before any answer: (2 states on/off, guess rates, persons)."""
        by_rate = np.array(self.guess_weights)[None, :, None] / sum(self.guess_weights)
        state = np.array([1.0 - self.off_at_start, self.off_at_start])[:, None, None]
        return np.repeat(state * by_rate, count, axis=2)

    def told(self, mass: Array, phi: Array, lapse: Array, heard: bool) -> Array:
        """Masses after one answer; `phi` is Phi((level - threshold) / spread) of every person."""
        on, off = mass
        p = self._guess + (1.0 - self._guess - lapse) * phi
        if heard:
            on, off = on * p, off * self._guess
        else:
            on, off = on * (1.0 - p), off * (1.0 - self._guess)
        back = self.comes_back * off
        gone = self.goes_off * on
        out = np.empty_like(mass)
        np.subtract(on, gone, out=out[0])
        np.subtract(off, back, out=out[1])
        out[0] += back
        out[1] += gone
        return out

    def told_all(self, phis: Array, lapse: Array, heard: Sequence[bool]) -> tuple[Array, Array]:
        """Masses, each person's summing to 1, and log likelihoods after all answers in order.

        `phis` is (answers, persons).
        """
        mass = self.at_start(lapse.size)
        log_likelihood = np.zeros(lapse.size)
        for number, (phi, yes) in enumerate(zip(phis, heard, strict=True), start=1):
            mass = self.told(mass, phi, lapse, yes)
            if number % _RESCALE_EVERY == 0:
                total = mass.sum(axis=(0, 1))
                log_likelihood += np.log(total)
                mass /= total
        total = mass.sum(axis=(0, 1))
        return mass / total, log_likelihood + np.log(total)

    def outlook(self, mass: Array, lapse: Array) -> tuple[Array, Array]:
        """(a, b) with P(heard and person) = a + b Phi for the next tone."""
        on, off = mass
        a = (self._guess * (on + off)).sum(axis=0)
        b = ((1.0 - self._guess - lapse) * on).sum(axis=0)
        return a, b

    # Silence: what was answered when nothing was played, in whatever order --------------------

    def silence(self, catches: Sequence[bool], presses: int, tones: int) -> Array:
        """P(these answers to silence) by guess rate: multiplies the masses, at any time."""
        pressed, silent = sum(catches), len(catches)
        out = self._guess[:, 0] ** pressed * (1.0 - self._guess[:, 0]) ** (silent - pressed)
        if presses:
            gaps = max(tones + silent, presses)
            rate = self._guess[:, 0] + self.late_presses
            out = out * rate**presses * (1.0 - rate) ** (gaps - presses)
        return np.asarray(out)

    def log_idle(self, heard: int, tones: int, catches: Sequence[bool], presses: int) -> float:
        """Log P(all answers | the person does not listen)."""
        yes, trials = heard + sum(catches), tones + len(catches)
        if self.idle_rate is None:
            log_p = float(betaln(yes + 1, trials - yes + 1))
        else:
            log_p = yes * math.log(self.idle_rate) + (trials - yes) * math.log1p(-self.idle_rate)
        if presses:
            gaps = max(trials, presses)
            log_p += float(betaln(presses + 1, gaps - presses + 1))
        return log_p

    def idle_heard(self, heard: int, tones: int, catches: Sequence[bool]) -> float:
        """P(the next tone is answered | the person does not listen)."""
        if self.idle_rate is not None:
            return self.idle_rate
        return (heard + sum(catches) + 1) / (tones + len(catches) + 2)


def forced_choice(alternatives: int, lapses: Sequence[float] = (0.01, 0.03, 0.08)) -> AnswerModel:
    """The answers of a task with n alternatives: "heard" is a right choice, one in n by chance."""
    chance = 1.0 / alternatives
    weights = (0.4, 0.4, 0.2) if len(lapses) == 3 else (1.0 / len(lapses),) * len(lapses)
    return AnswerModel(
        guesses=(chance,), guess_weights=(1.0,), lapses=tuple(lapses), lapse_weights=weights,
        idle_rate=chance,
    )  # fmt: skip


def phi(level_db: float | Array, threshold_db: Array, sd_db: Array) -> Array:
    """Phi((level - threshold) / sd): the psychometric function without guesses and lapses."""
    return np.asarray(ndtr((level_db - threshold_db) / sd_db))
