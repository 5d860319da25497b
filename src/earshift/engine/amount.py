"""How much there is of what a rule speaks of: its own number with an interval, and in words.

A standard threshold shift speaks of an average, a significant one of any single frequency, a limit
of thresholds, a notch of a dip. `Amount` is that quantity as the answers leave it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

AUDIOMETRIC_HZ = (125.0, 250.0, 500.0, 1000.0, 2000.0, 3000.0, 4000.0, 6000.0, 8000.0)


@dataclass(frozen=True)
class Amount:
    """A rule's own quantity with its 95 % interval.

    Attributes:
        what: "mean", "least" or "most" of these frequencies, or a "dip" among them.
        frequencies_hz: that it is taken over, in Hz.
        low_db: lower end of its 95 % interval, in dB; a shift is positive where it is worse.
        middle_db: its median, in dB.
        high_db: upper end of its 95 % interval, in dB.
        rule_db: what the rule asks for at least, in dB; of an improvement negative.
        unit: of thresholds; empty for a shift.
        any_of_hz: where the rule names several single frequencies of which one suffices: all of
            them, in Hz.
        beyond: a threshold of now lies above all levels, so that it may be any larger.
    """

    what: str
    frequencies_hz: tuple[float, ...]
    low_db: float
    middle_db: float
    high_db: float
    rule_db: float
    unit: str = ""
    any_of_hz: tuple[float, ...] = ()
    beyond: bool = False

    def words(self, than: str) -> str:
        """The quantity in words, against what the rule asks for; `than` what it is compared with.

        Examples:
            >>> Amount("mean", (2000.0, 3000.0, 4000.0), 11, 16, 21, 10).words("in 2021")
            'average at 2-4 kHz is 11 to 21 dB worse than in 2021 (rule: 10 dB)'
        """
        if self.what == "dip":
            around = "the worst of 3-6 kHz is"
            return f"{around} {self._change()} than 2 and 8 kHz (a notch: {self._rule})"
        where = {
            "mean": f"average at {in_khz(self.frequencies_hz)}",
            "least": f"of {in_khz(self.frequencies_hz)}, the least changed",
            "most": f"of {in_khz(self.frequencies_hz)}, the most changed",
        }[self.what]
        if len(self.frequencies_hz) == 1:
            where = in_khz(self.frequencies_hz)
        if self.unit:
            where = where.replace("least changed", "best").replace("most changed", "worst")
            return f"{where} is {self._levels(self.unit)} (limit: {self._rule})"
        return f"{where} is {self._change()} than {than} (rule: {self._rule})"

    @property
    def _rule(self) -> str:
        size = f"{abs(self.rule_db):g} {self.unit or 'dB'}"
        if self.rule_db < 0.0 and not self.unit:
            size += " better"
        return f"{size} at any of {in_khz(self.any_of_hz)}" if self.any_of_hz else size

    def _levels(self, unit: str) -> str:
        low, high = round(self.low_db), round(self.high_db)
        if self.beyond:
            return f"at least {low} {unit}"
        return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"

    def _change(self) -> str:
        low, high = round(self.low_db), round(self.high_db)
        if self.beyond and low > 0:
            return f"at least {low} dB worse"
        if low < 0 < high:
            return f"between {-low} dB better and {high} dB worse"
        if low == high == 0:
            return "0 dB worse"
        near, far = (low, high) if high > 0 else (-high, -low)
        size = f"{near} dB" if near == far else f"{near} to {far} dB"
        return f"{size} {'worse' if high > 0 else 'better'}"


def in_khz(frequencies_hz: Sequence[float]) -> str:
    """Frequencies as people say them: neighbours as a range, others one by one.

    Examples:
        >>> in_khz([2000, 3000, 4000]), in_khz([500]), in_khz([1000, 4000])
        ('2-4 kHz', '500 Hz', '1 and 4 kHz')
    """
    given = sorted(frequencies_hz)
    if len(given) == 1 and given[0] < 1000.0:
        return f"{given[0]:g} Hz"
    texts = [f"{f / 1000.0:g}" for f in given]
    between = [f for f in AUDIOMETRIC_HZ if given[0] <= f <= given[-1]]
    if len(given) > 2 and set(between) <= set(given):
        return f"{texts[0]}-{texts[-1]} kHz"
    return f"{' and '.join(filter(None, (', '.join(texts[:-1]), texts[-1])))} kHz"


def in_percent(p: float) -> str:
    """A probability in per cent, with a digit more where it is close to certain.

    Examples:
        >>> in_percent(0.98), in_percent(0.0034), in_percent(0.99999)
        ('98 %', '0.3 %', 'over 99.9 %')
    """
    if p > 0.9995:
        return "over 99.9 %"
    if p < 0.0005:
        return "under 0.1 %"
    digits = 1 if min(p, 1.0 - p) < 0.01 else 0
    return f"{100.0 * p:.{digits}f} %"
