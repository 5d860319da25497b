"""The programme in numbers: due, overdue, tested and shifts, by department or job and period.

Shifts are people with a shift found in the period: confirmed by a full audiogram that meets the
rule, not confirmed by a later test, waiting for one, or closed by a reviewer. Proportions are of
the people tested, with Wilson's 95 % interval.
"""

from dataclasses import dataclass
from datetime import date

from earshift.clinic.site import site_settings
from earshift.clinic.worklist import refresh, windows
from earshift.engine.refusal import Refusal
from earshift.store import Store, WorkFilter
from earshift.studies.rates import wilson

GROUPS = ("department", "job")
SHIFTS = ("confirmed", "not_confirmed", "waiting", "closed")


@dataclass(frozen=True)
class Group:
    """One department or job, or everybody where `name` is None. All numbers are of people."""

    name: str | None
    people: int
    """Who has not left by the end of the period."""
    due: int
    """Whose test is due within the site's notice, or who was never tested."""
    overdue: int
    tested: int
    """With a test of any kind in the period."""
    audiograms: int
    """With a full audiogram in the period."""
    confirmed: int
    not_confirmed: int
    waiting: int
    closed: int
    letters: int = 0
    """Told in writing of a shift in the period; the next three were fitted with protectors, trained
    and referred."""
    protectors: int = 0
    trainings: int = 0
    referrals: int = 0

    @property
    def shares(self) -> dict[str, tuple[float, float, float] | None]:
        """Of those tested, people with a shift of each kind, with a 95 % interval; None when nobody
        was tested."""
        return {f"{name}_share": self._share(getattr(self, name)) for name in SHIFTS}

    def _share(self, people: int) -> tuple[float, float, float] | None:
        return None if self.tested == 0 else (people / self.tested, *wilson(people, self.tested))


@dataclass(frozen=True)
class Programme:
    """The programme in a period: everybody, and each group."""

    first: date
    last: date
    by: str
    everybody: Group
    groups: tuple[Group, ...]


def programme(store: Store, first: date, last: date, by: str = "department") -> Programme:
    """How the programme went from one day to another, both included."""
    if by not in GROUPS:
        raise Refusal(f"a programme is shown by {' or '.join(GROUPS)}", got=by)
    if last < first:
        raise Refusal("a period ends on the day it begins or later", got=f"{first} to {last}")
    refresh(store)
    settled = site_settings(store)
    wanted = WorkFilter(
        today=last.toordinal(),
        windows=windows(settled),
        notice=int(settled["notice_days"].value),
        by_full=not settled["screen_keeps_interval"].value,
    )
    counted = store.programme_counts(wanted, first.toordinal(), by)
    groups = [Group(name, **numbers) for name, numbers in counted.items()]
    groups.sort(key=lambda one: (one.name is None, one.name or ""))
    fields = [name for name in Group.__dataclass_fields__ if name != "name"]
    total = {name: sum(getattr(one, name) for one in groups) for name in fields}
    return Programme(first, last, by, Group(None, **total), tuple(groups))
