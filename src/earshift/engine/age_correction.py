"""What age alone explains of a shift, by a table with its source (practice: 1910.95 Appendix F)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from earshift.engine.checks import finite
from earshift.engine.refusal import Refusal


@cache
def _age_table() -> dict[str, Any]:
    text = (
        resources.files("earshift.engine")
        .joinpath("age_correction.json")
        .read_text(encoding="utf-8")
    )
    loaded: dict[str, Any] = json.loads(text)
    return loaded


@dataclass(frozen=True)
class AgeCorrection:
    """An employer's policy of taking off what age alone explains; off unless given.

    The correction is the table at the age now minus the table at the age of the baseline. The
    shipped table has 2000, 3000 and 4000 Hz only; other frequencies need a table of the user's own:
    a mapping from age to dB for each frequency.

    Attributes:
        sex: "male" or "female", as the shipped table has it.
        age_baseline: at the earlier audiogram, in years.
        age_now: at the later audiogram, in years.
        table: frequency in Hz to age in years to dB; None for the shipped one.
    """

    sex: str
    age_baseline: int
    age_now: int
    table: Mapping[float, Mapping[int, float]] | None = None

    def __post_init__(self) -> None:
        if self.table is None and self.sex not in ("male", "female"):
            raise Refusal(
                "the shipped age table knows 'male' and 'female' only; for others give a table "
                "or no age correction",
                got=self.sex,
            )
        for name in ("age_baseline", "age_now"):
            if not 0 <= finite(getattr(self, name), name) <= 120:
                raise Refusal(f"{name} must be an age in years", got=getattr(self, name))
        if self.age_now < self.age_baseline:
            raise Refusal("age_now must not be below age_baseline")

    def at(self, frequency_hz: float) -> float:
        """dB to take off the shift at a frequency."""
        return self._value(frequency_hz, self.age_now) - self._value(
            frequency_hz, self.age_baseline
        )

    def _value(self, frequency_hz: float, age: int) -> float:
        if self.table is not None:
            if frequency_hz not in self.table:
                raise Refusal(f"the age table given has no {frequency_hz:g} Hz")
            ages = self.table[frequency_hz]
            years = min(max(int(age), min(ages)), max(ages))
            if years not in ages:
                raise Refusal(f"the age table given has no age {years} at {frequency_hz:g} Hz")
            return finite(ages[years], f"age {years} at {frequency_hz:g} Hz in the age table")
        shipped = _age_table()
        if frequency_hz not in shipped["frequencies_hz"]:
            raise Refusal(f"no verified age correction ships for {frequency_hz:g} Hz; give a table")
        low, high = shipped["ages"]
        row = shipped[self.sex][min(max(int(age), low), high) - low]
        return float(row[shipped["frequencies_hz"].index(frequency_hz)])
