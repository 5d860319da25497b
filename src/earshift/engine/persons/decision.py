"""What may be said after some answers: a decision on each question, or what stands in its way.

Decisions are made by the Bayes factor: a site's prevalence turns it into a probability and does
nothing else.
"""

import math

from earshift.engine.persons.evidence import Evidence


class Decisions(Evidence):
    """The decision on each question, the reason where there is none, and what would help."""

    @property
    def reliability(self) -> str:
        """good, fair or poor: whether somebody listened."""
        stop = self.design.stopping
        if self.p_idle > stop.not_reliable and not self._few:
            return "poor"
        return "fair" if self.p_idle > stop.doubt else "good"

    @property
    def _few(self) -> bool:
        """Whether there are too few answers to say of anybody that they do not listen."""
        return len(self.trials) < self.design.stopping.not_reliable_tones

    def uncleared(self, question: int = 0) -> dict[float, float]:
        """Frequencies without an answered tone soft enough, and the loudest that would do."""
        ear = self.design.asked[question].ear
        softest = self.design.levels_db[0]
        out = {}
        for f, level in self.clearing[question].items():
            limit = max(level, self.design.softest_db.get(f, softest)) + 1e-9
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
        stop = self.design.stopping
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
        if self.p_idle > self.design.stopping.doubt:
            return "too few answers" if self._few else "listener in doubt"
        if self.log_bf(question) <= -math.log(self.design.stopping.bayes_factor):
            return "not heard at every frequency"
        return "evidence"

    def next_step(self, question: int = 0) -> str:
        """What would help most where there is no decision; empty when there is one."""
        reason = self.reason(question)
        if not reason:
            return ""
        if reason in ("not reliable", "listener in doubt"):
            return "retest"
        before, after = self.uncertainty_db(question)
        return "better reference" if reason == "evidence" and before > after else "more tones"

    def uncertainty_db(self, question: int = 0) -> tuple[float, float]:
        """Mean SD in dB of the thresholds that a question looks at: before, and now."""
        asked = self.design.asked[question]
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
        if self.design.asked:
            questions = range(len(self.design.asked))
            return all(self.decision(j) != "inconclusive" for j in questions)
        low, middle, high = self.thresholds(self.design.wanted_hz)
        wide = max(float((high - middle).max()), float((middle - low).max()))
        return wide <= self.design.stopping.within_db and self.p_idle <= self.design.stopping.doubt
