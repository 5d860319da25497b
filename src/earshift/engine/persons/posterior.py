"""A sitting of questions, and what its answers say: probabilities, verdicts, the next tone.

`Sitting` fixes what is asked and of whom; `assess` folds the answers in order into a `Posterior`,
which never changes. With several questions at once the persons are sorted by all of their answers
together: a side for each combination, a cloud for each side.

Answers to silence enter on top of the fold, by each guess rate, so their place among the tones does
not matter. Tones are chosen with even odds between yes and no, and decisions are made by the Bayes
factor: a site's prevalence turns it into a probability and does nothing else.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earshift.engine.persons import cloud as clouds_of
from earshift.engine.persons.answers import AnswerModel
from earshift.engine.persons.cloud import Cloud, Told
from earshift.engine.persons.outlook import Outlook, entropy
from earshift.engine.persons.people import Persons, Prior
from earshift.engine.persons.population import AUDIOMETRIC_HZ, interpolation
from earshift.engine.persons.questions import Asked
from earshift.engine.values import EARS

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

TIE = 1e-9  # scores closer than this are equal, and the first in the grid's order is asked
CLEARING_BONUS = 1.25  # for a tone that clears a frequency besides what it tells
INTERVAL = (0.025, 0.975)
FEWEST_EFFECTIVE = 200.0  # persons on a side; below it the numbers are not to be relied on


@dataclass(frozen=True)
class Stopping:
    """When enough is known."""

    bayes_factor: float = 100.0
    prevalence: float = 0.12  # prior P(yes) of a site, for probabilities alone
    doubt: float = 0.01  # no decision while P(does not listen) is larger
    not_reliable: float = 0.5  # from this P(does not listen) on, after `not_reliable_tones`
    not_reliable_tones: int = 8
    within_db: float = 5.0  # an exam's 95 % intervals reach at most so far to either side


@dataclass(frozen=True, eq=False)
class Sitting:
    """What is asked, of whom, with which tones."""

    prior: Prior
    asked: tuple[Asked, ...] = ()  # none: an exam, what are the thresholds?
    frequencies_hz: tuple[float, ...] = AUDIOMETRIC_HZ  # of the tones that may be asked
    levels_db: tuple[float, ...] = tuple(float(level) for level in range(-10, 101, 5))
    wanted_hz: tuple[float, ...] = AUDIOMETRIC_HZ  # thresholds that an exam seeks
    seed: int = 0
    answers: AnswerModel = field(default_factory=AnswerModel)
    stopping: Stopping = field(default_factory=Stopping)
    persons: int | None = None  # on each side; None: as many as the kind of sitting needs
    steering: tuple[int, ...] | None = None  # questions that tones are chosen for; None: all
    softest_db: Mapping[float, float] = field(default_factory=dict)  # playable, by frequency in Hz

    @property
    def side_count(self) -> int:
        return 1 << len(self.asked)

    def sides(self, persons: Persons) -> NDArray[np.intp]:
        """Bit j is set where the answer to question j is yes."""
        out = np.zeros(persons.count, dtype=np.intp)
        for j, question in enumerate(self.asked):
            after = persons.after
            if question.apparent:
                after = after + persons.offset_db[:, None, None]
            yes = question.met(persons.before, after, self.prior.nodes_hz)
            out += yes.astype(np.intp) << j
        return out

    def before_any(self) -> "Posterior":
        """The posterior before any answer; not kept, because few sittings ever go back to it."""
        found, shares = clouds_of.first_clouds(
            self.prior, self.sides, self.side_count, self.answers, self.seed,
            self.persons or (clouds_of.PERSONS if self.asked else clouds_of.EXAM_PERSONS),
        )  # fmt: skip
        clearing = tuple(
            {} if (any_cloud := next((c for c in found if c), None)) is None
            else q.clearing(any_cloud.persons.before, self.prior.nodes_hz)
            for q in self.asked
        )  # fmt: skip
        return Posterior(self, found, shares, clearing)

    def assess(
        self,
        trials: Sequence[Any],
        catches: Sequence[bool] = (),
        presses: int = 0,
        before: "Posterior | None" = None,
        other_ear: "OtherEar | None" = None,
    ) -> "Posterior":
        """Everything that these answers say; goes on from `before` if that knows the first ones."""
        known = 0 if before is None else len(before.trials)
        if before is None or before.sitting is not self or before.trials != tuple(trials[:known]):
            before = self.before_any()
        state = before
        for trial in trials[len(state.trials) :]:
            state = state.after(trial)
        return state.with_silence(catches, presses, other_ear)

    def told(self, trial: Any) -> Told:
        """A trial (of a tone with `frequency_hz`, `level_db_hl` and `ear`) for the nodes."""
        ear = EARS.index(trial.tone.ear) if self.prior.ears == 2 else 0
        weights, variance = self.row(trial.tone.frequency_hz, ear)
        return Told(weights, variance, ear, float(trial.tone.level_db_hl), bool(trial.heard))

    def row(self, frequency_hz: float, ear: int) -> tuple[Array, float]:
        """Weights over both ears' nodes for the threshold at a frequency, and its variance."""
        nodes = self.prior.nodes_hz
        own, variance = interpolation(nodes, frequency_hz)
        weights = np.zeros(self.prior.ears * len(nodes))
        weights[ear * len(nodes) : (ear + 1) * len(nodes)] = own
        return weights, variance

    @cached_property
    def grid(self) -> tuple[Array, Array, list[int]]:
        """Weights (places, nodes), variances and ears of every place: ear by ear, low to high."""
        places = [(ear, f) for ear in range(self.prior.ears) for f in self.frequencies_hz]
        rows = [self.row(f, ear) for ear, f in places]
        return (
            np.array([weights for weights, _ in rows]),
            np.array([variance for _, variance in rows]),
            [ear for ear, _ in places],
        )


def information(weights: Array, heard: Array) -> Array:
    """Nats that the answer tells about the hypothesis: P(hypotheses), P(heard) of each by tone."""
    return np.asarray(entropy(weights @ heard) - weights @ entropy(heard))


@dataclass(frozen=True)
class OtherEar:
    """What the other ear's tones say of the listener, where each ear has a cloud of its own."""

    log_evidence: float = 0.0  # of its answers, if somebody listens
    heard: int = 0
    tones: int = 0


@dataclass(frozen=True, eq=False)
class Posterior:
    """What is known after some answers."""

    sitting: Sitting
    clouds: tuple[Cloud | None, ...]
    shares: Array  # of the model's prior, by side
    clearing: tuple[dict[float, float], ...]  # by question: frequency to the loudest that clears
    trials: tuple[Any, ...] = ()
    told: tuple[Told, ...] = ()
    catches: tuple[bool, ...] = ()
    presses: int = 0
    other_ear: OtherEar = field(default_factory=OtherEar)
    earlier: tuple[Array, ...] = ()  # `by_guess` after each number of tones before these

    # The fold -------------------------------------------------------------------------------

    def after(self, trial: Any) -> "Posterior":
        """The posterior once this trial's answer is known too."""
        s = self.sitting
        told = (*self.told, s.told(trial))
        clouds = tuple(
            None if c is None else c.after(told, s.prior, s.sides, s.answers, s.seed)
            for c in self.clouds
        )
        return replace(
            self, clouds=clouds, trials=(*self.trials, trial), told=told,
            earlier=(*self.earlier, self.by_guess),
        )  # fmt: skip

    def with_silence(
        self, catches: Sequence[bool], presses: int, other_ear: OtherEar | None = None
    ) -> "Posterior":
        """The same with these answers to silent trials, and presses between the tones."""
        other = OtherEar() if other_ear is None else other_ear
        given = tuple(bool(c) for c in catches)
        if (given, presses, other) == (self.catches, self.presses, self.other_ear):
            return self
        return replace(self, catches=given, presses=presses, other_ear=other)

    def refreshed(self) -> "Posterior":
        """The same distribution by persons drawn again and moved: none is there twice."""
        if not self.told:
            return self
        s = self.sitting
        clouds = tuple(
            None if c is None else c.moved(self.told, s.prior, s.sides, s.answers, s.seed + 1)
            for c in self.clouds
        )
        return replace(self, clouds=clouds)

    # Evidence -------------------------------------------------------------------------------

    @cached_property
    def _silence(self) -> Array:
        return self.sitting.answers.silence(self.catches, self.presses, len(self.trials))

    def mass(self, side: int) -> Array:
        """Mass of a side's persons, their answers to silence included."""
        cloud = self.clouds[side]
        assert cloud is not None
        return np.asarray(cloud.mass * self._silence[None, :, None])

    @cached_property
    def by_guess(self) -> Array:
        """Log P(answers to tones and guess rate | side): (sides, guess rates)."""
        rates = len(self.sitting.answers.guesses)
        with np.errstate(divide="ignore"):
            return np.array([
                np.full(rates, -np.inf) if c is None
                else c.log_evidence + np.log(c.mass.sum(axis=(0, 2)))
                for c in self.clouds
            ])  # fmt: skip

    @cached_property
    def log_evidence(self) -> Array:
        """Log P(all answers | side), for every side."""
        return self._with_silence(self.by_guess)

    def _with_silence(self, by_guess: Array) -> Array:
        with np.errstate(divide="ignore"):
            logs = by_guess + np.log(self._silence)
        return np.array([logsumexp(row) for row in logs])

    def _yes(self, question: int) -> Flags:
        return np.array([bool(k >> question & 1) for k in range(self.sitting.side_count)])

    def log_bf(self, question: int = 0, tones: int | None = None) -> float:
        """Log Bayes factor of yes over no: now, or as it was after so many tones."""
        evidence = self.log_evidence
        if tones is not None and tones < len(self.trials):
            evidence = self._with_silence(self.earlier[tones])
        with np.errstate(divide="ignore"):
            joint = evidence + np.log(self.shares)
        yes = self._yes(question)
        sums = [
            float(logsumexp(joint[side]) - math.log(self.shares[side].sum()))
            if self.shares[side].sum() > 0.0
            else -math.inf
            for side in (yes, ~yes)
        ]
        return sums[0] - sums[1]

    def p_yes(self, question: int = 0, tones: int | None = None) -> float:
        """P(yes | answers) at the site's prevalence: now, or as it was after so many tones."""
        prevalence = self.sitting.stopping.prevalence
        return _logistic(self.log_bf(question, tones) + math.log(prevalence / (1.0 - prevalence)))

    p_changed = p_yes

    @cached_property
    def p_idle(self) -> float:
        """P(the person does not listen)."""
        model, other = self.sitting.answers, self.other_ear
        listens = self.log_listens + other.log_evidence
        tones = len(self.trials) + other.tones
        idle = model.log_idle(self._heard + other.heard, tones, self.catches, self.presses)
        return _logistic(idle - listens + math.log(model.idle_prior / (1.0 - model.idle_prior)))

    @property
    def _heard(self) -> int:
        return sum(t.heard for t in self.told)

    @cached_property
    def log_listens(self) -> float:
        """Log P(all answers | somebody listens), the sides even."""
        present = self.log_evidence[np.isfinite(self.log_evidence)]
        return logsumexp(present) - math.log(present.size)

    def seen_from_other_ear(self) -> OtherEar:
        """What these tones say of the listener; silence is counted there, too."""
        bare = self.with_silence((), 0)
        return OtherEar(bare.log_listens, self._heard, len(self.told))

    @property
    def attention(self) -> float:
        """P(the person was attentive just now), given that they listen at all."""
        return float(sum(w * m[0].sum() / m.sum() for w, m in self._weighed()))

    def _weighed(self) -> list[tuple[float, Array]]:
        """Each side's probability at even odds of the sides' own shares, and its masses."""
        present = [k for k, c in enumerate(self.clouds) if c is not None]
        logs = self.log_evidence[present] + np.log(self.shares[present])
        weights = np.exp(logs - logsumexp(logs))
        return [(float(w), self.mass(k)) for w, k in zip(weights, present, strict=True)]

    @cached_property
    def effective_size(self) -> tuple[float, ...]:
        """Of how many equally weighted persons each side's cloud is worth."""
        out = []
        for k, c in enumerate(self.clouds):
            w = np.zeros(1) if c is None else self.mass(k).sum(axis=(0, 1))
            out.append(float(w.sum() ** 2 / (w**2).sum()) if w.any() else 0.0)
        return tuple(out)

    @property
    def converged(self) -> bool:
        """Whether every side has persons enough to rely on."""
        there = [n for n, share in zip(self.effective_size, self.shares, strict=True) if share]
        return min(there) >= FEWEST_EFFECTIVE

    # Verdicts -------------------------------------------------------------------------------

    @property
    def reliability(self) -> str:
        """good, fair or poor: whether somebody listened."""
        stop = self.sitting.stopping
        tones = len(self.trials) + self.other_ear.tones
        if self.p_idle > stop.not_reliable and tones >= stop.not_reliable_tones:
            return "poor"
        return "fair" if self.p_idle > stop.doubt else "good"

    def uncleared(self, question: int = 0) -> dict[float, float]:
        """Frequencies without an answered tone soft enough, and the loudest that would do."""
        ear = self.sitting.asked[question].ear
        softest = self.sitting.levels_db[0]
        out = {}
        for f, level in self.clearing[question].items():
            limit = max(level, self.sitting.softest_db.get(f, softest)) + 1e-9
            done = any(
                t.heard
                and t.level_db <= limit
                and t.ear == ear
                and abs(trial.tone.frequency_hz - f) < 1e-6 * f
                for t, trial in zip(self.told, self.trials, strict=True)
            )
            if not done:
                out[f] = limit
        return out

    def decision(self, question: int = 0) -> str:
        """changed (yes), unchanged (no) or inconclusive."""
        stop = self.sitting.stopping
        if self.p_idle > stop.doubt or not self.converged:
            return "inconclusive"
        log_bf, limit = self.log_bf(question), math.log(stop.bayes_factor)
        if log_bf >= limit:
            return "changed"
        return "unchanged" if log_bf <= -limit and not self.uncleared(question) else "inconclusive"

    def reason(self, question: int = 0) -> str:
        """Why there is no decision yet; empty when there is one."""
        if self.reliability == "poor":
            return "not reliable"
        if self.decision(question) != "inconclusive":
            return ""
        if not self.converged:
            return "computation"
        if self.p_idle > self.sitting.stopping.doubt:
            return "listener in doubt"
        if self.log_bf(question) <= -math.log(self.sitting.stopping.bayes_factor):
            return "not heard at every frequency"
        return "evidence"

    def next_step(self, question: int = 0) -> str:
        """What would help most where there is no decision; empty when there is one."""
        reason = self.reason(question)
        if not reason:
            return ""
        few = len(self.trials) < self.sitting.stopping.not_reliable_tones
        if reason == "not reliable" or (reason == "listener in doubt" and not few):
            return "retest"
        before, after = self.uncertainty_db(question)
        return "better reference" if reason == "evidence" and before > after else "more tones"

    def uncertainty_db(self, question: int = 0) -> tuple[float, float]:
        """Mean SD in dB of the thresholds that a question looks at: before, and now."""
        asked = self.sitting.asked[question]
        persons = self.samples(2000)
        both = (persons.before, persons.after)
        then, now = (
            float(self.at(levels, asked.needs_hz, asked.ear).std(axis=0).mean()) for levels in both
        )
        return then, now

    @property
    def done(self) -> bool:
        """Decided in every question (an exam: every interval narrow), or given up as unreliable."""
        if self.reliability == "poor":
            return True
        if self.sitting.asked:
            questions = range(len(self.sitting.asked))
            return all(self.decision(j) != "inconclusive" for j in questions)
        low, middle, high = self.thresholds(self.sitting.wanted_hz)
        wide = max(float((high - middle).max()), float((middle - low).max()))
        return (
            wide <= self.sitting.stopping.within_db and self.p_idle <= self.sitting.stopping.doubt
        )

    # Thresholds -----------------------------------------------------------------------------

    def samples(self, count: int, balanced_for: int | None = None) -> Persons:
        """Equally weighted persons of all sides by their probability.

        The sides' prior odds are the model's own; with `balanced_for`, the site's prevalence of
        that question.
        """
        rng = np.random.default_rng((self.sitting.seed, len(self.trials), 1_000_003))
        present = [k for k, c in enumerate(self.clouds) if c is not None]
        logs = self.log_evidence[present] + np.log(self.shares[present])
        if balanced_for is not None:
            yes = self._yes(balanced_for)[present]
            share = float(np.clip(self.shares[present][yes].sum(), 1e-9, 1.0 - 1e-9))
            odds = math.log(
                self.sitting.stopping.prevalence / (1 - self.sitting.stopping.prevalence)
            )
            logs = logs + np.where(yes, odds - math.log(share / (1.0 - share)), 0.0)
        weights = np.concatenate([
            math.exp(log - logsumexp(logs)) * (m := self.mass(k).sum(axis=(0, 1))) / m.sum()
            for log, k in zip(logs, present, strict=True)
        ])  # fmt: skip
        everyone = clouds_of.joined([c.persons for c in self.clouds if c is not None])
        edges = np.cumsum(weights)
        which = np.searchsorted(edges, (np.arange(count) + rng.random()) / count * edges[-1])
        return everyone.take(np.minimum(which, weights.size - 1))

    def thresholds(
        self, frequencies_hz: Sequence[float], ear: int = 0
    ) -> tuple[Array, Array, Array]:
        """Low end, median and high end (95 %) of the thresholds of now, in dB."""
        people = self.samples(4000)
        levels = self.at(people.after, frequencies_hz, ear)
        low, middle, high = np.quantile(levels, (INTERVAL[0], 0.5, INTERVAL[1]), axis=0)
        return low, middle, high

    def at(self, levels: Array, frequencies_hz: Sequence[float], ear: int) -> Array:
        """Samples at these frequencies from samples at the nodes: (samples, frequencies)."""
        rng = np.random.default_rng((self.sitting.seed, len(self.trials), 1_000_004))
        flat = levels.reshape(levels.shape[0], -1)
        columns = []
        for f in frequencies_hz:
            weights, variance = self.sitting.row(f, ear)
            rough = math.sqrt(variance) * rng.standard_normal(flat.shape[0]) if variance else 0.0
            columns.append(flat @ weights + rough)
        return np.column_stack(columns)

    # The next tone --------------------------------------------------------------------------

    def _outlook(self, side: int) -> Outlook:
        """What a side's persons expect of every tone."""
        s = self.sitting
        cloud = self.clouds[side]
        assert cloud is not None
        persons, mass = cloud.persons, self.mass(side)
        rows, extra, ears = s.grid
        thresholds = rows @ persons.after.reshape(persons.count, -1).T + persons.offset_db
        log_sd = persons.log_spread.T[ears]
        rough = extra > 0.0
        log_sd[rough] = 0.5 * np.log(np.exp(2.0 * log_sd[rough]) + extra[rough, None])
        a, b = s.answers.outlook(mass / mass.sum(), persons.lapse)
        return Outlook(thresholds, log_sd, a, b, s.levels_db)

    @cached_property
    def p_heard(self) -> Array:
        """P(heard | side) of every tone: (sides, tones); nan for a side that nobody is on."""
        s = self.sitting
        out = np.full((s.side_count, len(s.grid[2]) * len(s.levels_db)), np.nan)
        for k, cloud in enumerate(self.clouds):
            if cloud is not None:
                out[k] = self._outlook(k).heard.ravel()
        return out

    def hypotheses(self, question: int = 0) -> tuple[Array, Array]:
        """Probabilities of no, yes (at even odds) and not listening; P(heard) of each by tone."""
        yes = self._yes(question)
        heard = []
        for side in (~yes, yes):
            there = side & np.isfinite(self.log_evidence) & (self.shares > 0.0)
            if not there.any():  # nobody is on this side, and its probability is zero
                heard.append(np.zeros(self.p_heard.shape[1]))
                continue
            logs = np.where(there, self.log_evidence, -np.inf)
            weights = np.exp(logs - logs.max()) * self.shares
            there = weights > 0.0
            heard.append(weights[there] @ self.p_heard[there] / weights.sum())
        p = _logistic(self.log_bf(question))
        idle = np.full(heard[0].size, self._idle_heard)
        odds = np.array([1.0 - p, p]) * (1.0 - self.p_idle)
        return np.array([*odds, self.p_idle]), np.array([*heard, idle])

    @property
    def _idle_heard(self) -> float:
        other = self.other_ear
        return self.sitting.answers.idle_heard(
            self._heard + other.heard, len(self.told) + other.tones, self.catches
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Places (ear by ear) and levels of the scores."""
        return len(self.sitting.grid[2]), len(self.sitting.levels_db)

    @cached_property
    def scores(self) -> Array:
        """Nats that each tone's answer is expected to tell: (places, levels)."""
        if not self.sitting.asked:
            return self._about_thresholds()
        total = sum(information(*self.hypotheses(j)) for j in self._open or [0])
        return np.asarray(total).reshape(self.shape)

    def _about_thresholds(self) -> Array:
        """What the answer tells about the person, and about each of the wanted thresholds.

        The first is information about everything, the spread of the answers too; the second looks
        at the thresholds one by one, as if they were Gaussian. Each alone wastes tones: on what
        nobody wants to know, or on frequencies that a neighbour would tell about. So they count
        alike, in parts of the best tone's.
        """
        s = self.sitting
        cloud = self.clouds[0]
        assert cloud is not None
        expected = self._outlook(0)
        w = cloud_weights(self.mass(0))
        rows = np.array([s.row(f, e)[0] for e in range(s.prior.ears) for f in s.wanted_hz])
        levels = rows @ cloud.persons.after.reshape(w.size, -1).T
        levels = levels - (levels @ w)[:, None]
        p = expected.heard
        link = expected.heard_times(levels)
        r2 = link**2 / ((levels**2 @ w)[:, None, None] * p * (1.0 - p))
        each = -0.5 * np.log1p(-np.minimum(r2, 0.999)).sum(axis=0)
        listens = np.array([1.0 - self.p_idle, self.p_idle])
        either = np.array([p.ravel(), np.full(p.size, self._idle_heard)])
        whole = listens[0] * expected.information() + information(listens, either).reshape(p.shape)
        return np.asarray(whole / whole.max() + each / each.max())

    def wanted(self, playable: Flags | None = None) -> Array:
        """How much each tone is wanted: its score, more if it clears; -inf where not playable.

        When a question only waits for tones that clear it, no others are wanted, and of these the
        loudest at each place: a softer one may be missed again and again.
        """
        mask = np.ones(self.shape, dtype=bool) if playable is None else playable
        clears = self._clearing_tones() & mask
        scores = self.scores * np.where(clears, CLEARING_BONUS, 1.0)
        if self._waits_for_clearing and clears.any():
            louder = np.cumsum(clears[:, ::-1], axis=1)[:, ::-1]
            mask = clears & (louder == 1)
        return np.where(mask, scores, -np.inf)

    def best(self, playable: Flags | None = None) -> tuple[int, int]:
        """Place and level (indices into the scores) of the tone to ask next."""
        scores = self.wanted(playable)
        first = int(np.flatnonzero(scores.ravel() >= scores.max() - TIE)[0])
        return first // self.shape[1], first % self.shape[1]

    @property
    def _open(self) -> list[int]:
        """Questions without a decision that tones are chosen for."""
        steering = self.sitting.steering
        wanted = range(len(self.sitting.asked)) if steering is None else steering
        return [j for j in wanted if self.decision(j) == "inconclusive"]

    @property
    def _waits_for_clearing(self) -> bool:
        """Whether all that is open has evidence enough against it."""
        stop = self.sitting.stopping
        enough = all(self.log_bf(j) <= -math.log(stop.bayes_factor) for j in self._open)
        return enough and self.p_idle <= stop.doubt

    def _clearing_tones(self) -> Flags:
        """Tones that, when answered, clear a frequency of an open question."""
        s = self.sitting
        out = np.zeros(self.shape, dtype=bool)
        levels = np.array(s.levels_db)
        for j in self._open:
            for f, loudest in self.uncleared(j).items():
                if f in s.frequencies_hz:
                    place = s.asked[j].ear * len(s.frequencies_hz) + s.frequencies_hz.index(f)
                    out[place] |= levels <= loudest
        return out


def cloud_weights(mass: Array) -> Array:
    """Persons' weights, summing to 1."""
    weights = mass.sum(axis=(0, 1))
    return np.asarray(weights / weights.sum())


def logsumexp(logs: Array) -> float:
    """log of the sum of exponentials."""
    top = float(logs.max())
    return top if math.isinf(top) else top + math.log(float(np.exp(logs - top).sum()))


def _logistic(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0.0 else math.exp(x) / (1.0 + math.exp(x))
