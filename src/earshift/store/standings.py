"""How everybody stands: rows worked out from all others, for lists that have to be quick.

Triggers note in `stale` of whom something new is known, whichever program wrote it. `refresh` works
their rows out again by the clinic's rules, which it is given; nothing here is the only copy.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

from sqlalchemy import (
    Connection,
    Row,
    Select,
    Table,
    and_,
    case,
    delete,
    func,
    insert,
    literal,
    null,
    or_,
    select,
)

from earshift.days import local_day
from earshift.engine.values import EARS
from earshift.records import (
    ChosenBaseline,
    ExamRecord,
    HistoryOfTests,
    Person,
    Standing,
    StoredTest,
    WorkRow,
    in_order,
    shown_of,
)
from earshift.store import checks, exams, people, rows, texts
from earshift.store import tables as t
from earshift.store.database import (
    HOLD_SECONDS,
    STANDINGS_LOCK,
    let_others_write,
    reading,
    writing,
)
from earshift.store.rows import Part

CHUNK = 100  # people worked out at once
VARIABLES = 10_000  # ids in one statement; SQLite takes some 30,000
WORKED_OUT = (t.standings, t.tasks, t.tested)

Derive = Callable[[HistoryOfTests], Standing]


@dataclass(frozen=True)
class WorkFilter:
    """Which lines of the worklist are wanted. Empty text and None mean all."""

    today: int
    """`date.toordinal` of the day that the list is for."""
    windows: Mapping[str, int]
    """Days to do it in, by reason."""
    notice: int = 0
    """Days before it is due on which a periodic test is listed."""
    by_full: bool = True
    """Whether only full audiograms keep an interval, or tests of any kind."""
    search: str | None = None
    department: str | None = None
    job: str | None = None
    whys: tuple[str, ...] | None = None
    overdue: bool = False
    """Only lines whose window is over."""


def _histories(connection: Connection, wanted: Iterable[Person]) -> list[HistoryOfTests]:
    """The tests of these people, each with those of the records that were merged into theirs."""
    known = {person.id: person for person in wanted}
    owner = {one: one for one in known}
    m, later = t.merges, t.merges.alias("later")
    newer = select(later.c.id).where(later.c.person_id == m.c.person_id, later.c.id > m.c.id)
    merged = select(m.c.person_id, m.c.into_id).where(m.c.into_id.in_(known), ~newer.exists())
    owner |= {row.person_id: row.into_id for row in connection.execute(merged)}
    of_people = t.visits.c.person_id.in_(owner)
    joined = t.exams.join(t.visits, t.visits.c.id == t.exams.c.visit_id)
    ids = select(t.exams.c.id).select_from(joined).where(of_people)
    shown = {
        row.exam_id: row.shown
        for row in connection.execute(
            select(t.results.c.exam_id, t.results.c.shown)
            .where(t.results.c.exam_id.in_(ids))
            .order_by(t.results.c.id)
        )
    }
    closed = {
        (row.exam_id, ear): row.closed
        for row in connection.execute(
            select(*texts.columns(t.closings))
            .where(t.closings.c.exam_id.in_(ids))
            .order_by(t.closings.c.id)
        )
        for ear in (row.ears.split() or EARS)
    }
    signed, shifts, told = _signed(connection, owner)
    tests: dict[int, list[StoredTest]] = {one: [] for one in known}
    found = connection.execute(
        select(
            t.visits.c.person_id,
            t.visits.c.started_at,
            t.visits.c.zone,
            t.exams,
            literal("").label("source"),  # typed text decides nothing here, and is not read
            exams.newest_state().label("state"),
        )
        .select_from(joined)
        .where(of_people, t.visits.c.mode != "simulated")
    )
    elsewhere = set()  # measured there: their day counts, and not when they came
    for row in found:
        at = row.measured_at
        if at is not None:
            elsewhere.add(row.id)
        if at is None and row.kind != "audiogram":
            at = row.started_at
        record = rows.to_record(ExamRecord, row)
        tests[owner[row.person_id]] += [
            StoredTest(
                id=row.id,
                ear=ear,
                kind=row.kind,
                state=row.state,
                day=None if at is None else local_day(at, row.zone),
                # A day, as nobody knows the hour of an audiogram from elsewhere.
                entered=(local_day(at or row.started_at, row.zone), row.id),
                design=row.design,
                shown=shown_of(shown[row.id], ear) if row.id in shown else None,
                reference_exam_id=record.references.get(ear),
                closed=closed.get((row.id, ear), False),
                visit_id=row.visit_id,
                signed=row.id in signed,
                shift_since=shifts.get(f"{row.id} {ear}", shifts.get(str(row.id))),
                letter_sent=row.visit_id in told,
                known_at=row.started_at,
            )
            for ear in record.ears
        ]
    baselines: dict[int, dict[str, tuple[ChosenBaseline, ...]]] = {one: {} for one in known}
    b = t.baselines
    chosen = select(b.c.person_id, b.c.ear, b.c.exam_id, b.c.at).where(b.c.person_id.in_(owner))
    for row in connection.execute(chosen.order_by(b.c.id)):
        of_ear = baselines[owner[row.person_id]]
        of_ear[row.ear] = (*of_ear.get(row.ear, ()), ChosenBaseline(row.exam_id, row.at))
    return [
        HistoryOfTests(
            person,
            tuple(
                replace(test, entered=(day, test.id))
                for day, test in in_order(
                    tests[one], lambda test: (test.id, test.entered[0], test.id not in elsewhere)
                )
            ),
            baselines[one],
        )
        for one, person in known.items()
    ]


def _signed(
    connection: Connection, person_ids: Iterable[int]
) -> tuple[set[int], dict[str, date], set[int]]:
    """Exams that were signed, since when those that were signed as shifts are, and visits whose
    person was told by letter. A shift is named by its exam and ear; older ones by the exam alone.
    """
    s, a, f = t.signatures, t.signed, t.follow_ups
    ids = list(person_ids)
    newest: dict[int, dict[str, Any]] = {}
    said = select(s.c.visit_id, a.c.about).join(a, a.c.signature_id == s.c.id)
    for row in connection.execute(said.where(s.c.person_id.in_(ids)).order_by(s.c.id)):
        newest[row.visit_id] = row.about
    signed = {exam for about in newest.values() for exam in about["exams"]}
    shifts = {
        shift: date.fromisoformat(day)
        for about in newest.values()
        for shift, day in about["shift_since"].items()
    }
    letters = select(f.c.visit_id, f.c.done).where(f.c.kind == "letter", f.c.person_id.in_(ids))
    sent = {row.visit_id: row.done for row in connection.execute(letters.order_by(f.c.id))}
    return signed, shifts, {visit for visit, done in sent.items() if done}


def _rows_of(history: HistoryOfTests, standing: Standing) -> dict[str, Any]:
    person = history.person
    created = person.created_at or datetime.now(UTC)
    began = person.hired_on or created.date()
    return {
        "person_id": person.id,
        "code": person.code,
        "name": person.name,
        "found_by": f"{person.code or ''} {person.name or ''}".casefold(),
        "department": person.department,
        "job": person.job,
        "from_day": began.toordinal(),
        "left_day": None if person.left_on is None else person.left_on.toordinal(),
        "full_day": standing.full_day,
        "full_ears": standing.full_ears,
        "any_day": standing.any_day,
        "any_ears": standing.any_ears,
    }


def _worked_out(
    connection: Connection, found: Iterable[Person], derive: Derive
) -> dict[Table, list[dict[str, Any]]]:
    """The rows that follow from what is stored of these people."""
    there = [one for one in found if one.erased_at is None and one.merged_into is None]
    made: dict[Table, list[dict[str, Any]]] = {table: [] for table in WORKED_OUT}
    for history in _histories(connection, there):
        standing, person_id = derive(history), history.person.id
        made[t.standings].append(_rows_of(history, standing))
        made[t.tasks] += [{"person_id": person_id, **asdict(one)} for one in standing.tasks]
        made[t.tested] += [{"person_id": person_id, **asdict(one)} for one in standing.tested]
    return made


def _astray(connection: Connection, found: Sequence[Person], derive: Derive) -> set[int]:
    """Who of these people has other rows than follow from what is stored of them."""
    different: set[int] = set()
    for table, made in _worked_out(connection, found, derive).items():
        columns = [column for column in table.c if column.name != "id"]
        of_them = table.c.person_id.in_([one.id for one in found])
        there = Counter(tuple(row) for row in connection.execute(select(*columns).where(of_them)))
        expected = Counter(tuple(row[column.name] for column in columns) for row in made)
        place = [column.name for column in columns].index("person_id")
        different |= {row[place] for row in (there - expected) + (expected - there)}
    return different


def _refresh_some(connection: Connection, derive: Derive) -> int:
    """Work out some of those who are stale; how many there were."""
    if connection.dialect.name == "postgresql":  # an older view must not overwrite a newer one
        connection.execute(select(func.pg_advisory_xact_lock(STANDINGS_LOCK)))
    some = select(t.stale.c.person_id).distinct().order_by(t.stale.c.person_id).limit(CHUNK)
    marked = connection.execute(some).scalars().all()
    if not marked:
        return 0
    # By their ids: what is marked from now on stays for the next time.
    marks = connection.execute(select(t.stale.c.id).where(t.stale.c.person_id.in_(marked)))
    mark_ids = marks.scalars().all()
    query = people.people_query().where(t.people.c.id.in_(marked))
    found = rows.to_records(Person, connection.execute(query))
    others = {one.merged_into for one in found} - {None, *marked}
    query = people.people_query().where(t.people.c.id.in_(others))
    found += rows.to_records(Person, connection.execute(query)) if others else []
    for table in WORKED_OUT:
        connection.execute(delete(table).where(table.c.person_id.in_([*marked, *others])))
    for table, new in _worked_out(connection, found, derive).items():
        if new:
            connection.execute(insert(table), new)
    for start in range(0, len(mark_ids), VARIABLES):
        these = mark_ids[start : start + VARIABLES]
        connection.execute(delete(t.stale).where(t.stale.c.id.in_(these)))
    return len(marked)


SHIFTS = {
    "confirmed": "confirmed",
    "not_confirmed": "not confirmed",
    "waiting": "waiting",
    "closed": "closed",
}
# What was done after shifts, by people: the numbers of a programme, and kinds of follow-ups.
DONE_AFTER = {
    "letters": "letter",
    "protectors": "protector",
    "trainings": "training",
    "referrals": "referral",
}
WHO = ("code", "name", "department", "job")


def _branches(wanted: WorkFilter) -> dict[str, Select[Any]]:
    """The kinds of lines, each as a query in the order of its day."""
    s = t.standings
    last = s.c.full_day if wanted.by_full else s.c.any_day
    ears = s.c.full_ears if wanted.by_full else s.c.any_ears
    who = [s.c[name] for name in WHO]

    def untested(why: str, day: Any) -> Select[Any]:
        columns = (s.c.person_id, literal(why).label("why"), ears.label("ears"), day.label("day"))
        # In the order of the index: thousands are due on one day, and a page needs few of them.
        order = (last, s.c.from_day, s.c.person_id)
        return select(*columns, null().label("exam_id"), *who).order_by(*order)

    found = {
        "first": untested("first", s.c.from_day).where(last.is_(None)),
        "due": untested("due", last).where(
            last <= wanted.today + wanted.notice - wanted.windows["due"]
        ),
    }
    k = t.tasks
    for why in ("unfinished", "audiogram", "retest", "review", "letter"):
        found[why] = (
            select(k.c.person_id, k.c.why, k.c.ears, k.c.day, k.c.exam_id, *who)
            .join(s, s.c.person_id == k.c.person_id)
            .where(k.c.why == why)
            .order_by(k.c.day, k.c.person_id)
        )
    found = {why: _narrowed(query, wanted) for why, query in found.items()}
    if wanted.overdue:
        found = {why: query.where(_late(why, wanted)) for why, query in found.items()}
    return {why: q for why, q in found.items() if wanted.whys is None or why in wanted.whys}


def _late(why: str, wanted: WorkFilter) -> Any:
    """Whether the window of a line is over."""
    s = t.standings
    last = s.c.full_day if wanted.by_full else s.c.any_day
    day = {"first": s.c.from_day, "due": last}.get(why, t.tasks.c.day)
    return day < wanted.today - wanted.windows[why]


def _narrowed(query: Select[Any], wanted: WorkFilter) -> Select[Any]:
    s = t.standings
    query = query.where(or_(s.c.left_day.is_(None), s.c.left_day > wanted.today))
    if wanted.search:
        query = query.where(s.c.found_by.contains(wanted.search.casefold(), autoescape=True))
    for name in ("department", "job"):
        if getattr(wanted, name):
            query = query.where(s.c[name] == getattr(wanted, name))
    return query


def _counts(connection: Connection, why: str, query: Select[Any], wanted: WorkFilter) -> Row[Any]:
    """How many lines of a kind there are, and how many of them are overdue."""
    late = func.coalesce(func.sum(case((_late(why, wanted), 1), else_=0)), 0)
    counted = query.order_by(None).with_only_columns(
        func.count().label("lines"), late.label("overdue")
    )
    return connection.execute(counted).one()


class Standings(Part):
    """The store's calls about how everybody stands."""

    def refresh_standings(self, derive: Derive, *, everybody: bool = False) -> int:
        """Work out again how people stand of whom something new is known, or all of it."""
        if everybody:
            self.mark_everybody()
            with writing(self.engine) as connection:
                connection.execute(delete(t.names))
                names = people.newest_names()
                connection.execute(insert(t.names).from_select(["person_id", "found_by"], names))
        with reading(self.engine) as connection:
            if connection.execute(select(t.stale.c.id).limit(1)).first() is None:
                return 0
        total = 0
        while True:
            with writing(self.engine) as connection:
                began = time.monotonic()
                while done := _refresh_some(connection, derive):
                    total += done
                    if time.monotonic() - began > HOLD_SECONDS:
                        break
            if done == 0:
                return total
            let_others_write(self.engine)

    def astray(self, derive: Derive) -> list[int]:
        """People of whom something else is worked out than follows from what is stored, and who
        are not marked to be worked out again: no program of ours leaves any."""
        different: set[int] = set()
        with reading(self.engine) as connection:
            waiting = set(connection.execute(select(t.stale.c.person_id).distinct()).scalars())
            last = 0
            while True:
                query = people.people_query().where(t.people.c.id > last).order_by(t.people.c.id)
                found = rows.to_records(Person, connection.execute(query.limit(CHUNK)))
                if not found:
                    return sorted(different - waiting)
                last = found[-1].id
                waiting |= {one.merged_into for one in found if one.id in waiting} - {None}
                different |= _astray(connection, found, derive)

    def mark_everybody(self) -> None:
        """Let everybody be worked out again: what the clinic goes by has changed."""
        with writing(self.engine) as connection:
            connection.execute(insert(t.stale).from_select(["person_id"], select(t.people.c.id)))

    def history_of_tests(self, person_id: int) -> HistoryOfTests:
        """One person's tests, as the clinic's rules read them."""
        with reading(self.engine) as connection:
            return _histories(connection, [people.person_of(connection, person_id)])[0]

    def work(
        self, wanted: WorkFilter, *, start: int, limit: int | None
    ) -> tuple[list[WorkRow], dict[str, int], int]:
        """Lines of the worklist by when they have to be done; how many of each kind there are on
        all pages, and how many of them are overdue."""
        found: list[tuple[int, WorkRow]] = []
        branches = _branches(wanted)
        with reading(self.engine) as connection:
            for why, query in branches.items():
                some = query if limit is None else query.limit(start + limit)
                found += [
                    (row.day + wanted.windows[why], WorkRow(**row._mapping))
                    for row in connection.execute(some)
                ]
            numbers = {
                why: _counts(connection, why, query, wanted) for why, query in branches.items()
            }
        counts = {why: int(row.lines) for why, row in numbers.items()}
        overdue = sum(int(row.overdue) for row in numbers.values())
        # Within a day each kind keeps its own order, so that no page repeats or skips a line.
        found.sort(key=lambda pair: pair[0])
        page = found[start:] if limit is None else found[start : start + limit]
        return [row for _, row in page], counts, overdue

    def full_day(self, person_id: int) -> int | None:
        """The day of the full audiogram by which somebody's next one is due."""
        s = t.standings
        query = select(s.c.full_day).where(s.c.person_id == checks.as_id(person_id, "person"))
        with reading(self.engine) as connection:
            day: int | None = connection.execute(query).scalar_one_or_none()
        return day

    def programme_counts(
        self, wanted: WorkFilter, first: int, by: str
    ) -> dict[str | None, dict[str, int]]:
        """Numbers of people by department or job, from the day `first` to the filter's day."""
        s, d = t.standings, t.tested
        group = s.c[by]
        last = s.c.full_day if wanted.by_full else s.c.any_day
        there = or_(s.c.left_day.is_(None), s.c.left_day > wanted.today)
        due = or_(last.is_(None), last <= wanted.today + wanted.notice - wanted.windows["due"])
        late = or_(
            last < wanted.today - wanted.windows["due"],
            and_(last.is_(None), s.c.from_day < wanted.today - wanted.windows["first"]),
        )
        period = d.c.day.between(first, wanted.today)
        # Most people's own row says it: only of the others all tests are looked through.
        theirs = select(d.c.id).where(d.c.person_id == s.c.person_id, period).correlate(s)
        tested = (
            (s.c.any_day.between(first, wanted.today), 1),
            (theirs.where(d.c.complete.in_([True, False])).exists(), 1),
        )
        audiogram = (
            (s.c.full_day.between(first, wanted.today), 1),
            (theirs.where(d.c.complete.is_(True)).exists(), 1),
        )
        standing = select(
            group.label("name"),
            func.sum(case((there, 1), else_=0)).label("people"),
            func.sum(case((and_(there, due), 1), else_=0)).label("due"),
            func.sum(case((and_(there, late), 1), else_=0)).label("overdue"),
            func.sum(case(*tested, else_=0)).label("tested"),
            func.sum(case(*audiogram, else_=0)).label("audiograms"),
        )
        # One row a person first: a shift of each ear is one person's.
        one = (
            select(
                d.c.person_id,
                *(
                    func.max(case((d.c.shift == word, 1), else_=0)).label(name)
                    for name, word in SHIFTS.items()
                ),
            )
            .where(d.c.shift.in_(SHIFTS.values()), period)
            .group_by(d.c.person_id)
            .subquery()
        )
        shifts = select(
            group.label("name"), *(func.sum(one.c[name]).label(name) for name in SHIFTS)
        ).join(one, one.c.person_id == s.c.person_id)
        after = self._followed_up(first, wanted.today)
        followed = select(
            group.label("name"),
            *(func.sum(after.c[name]).label(name) for name in DONE_AFTER),
        ).join(after, after.c.person_id == s.c.person_id)
        numbers = ("people", "due", "overdue", "tested", "audiograms", *SHIFTS, *DONE_AFTER)
        found: dict[str | None, dict[str, int]] = {}
        with reading(self.engine) as connection:
            for query in (standing, shifts, followed):
                for row in connection.execute(query.group_by(group)):
                    known = {
                        name: int(n or 0) for name, n in row._mapping.items() if name != "name"
                    }
                    if not any(known.values()):  # all have left, and nobody was tested
                        continue
                    found.setdefault(row.name, dict.fromkeys(numbers, 0)).update(known)
        return found

    def _followed_up(self, first: int, last: int) -> Any:
        """One row a person for whom something was done after a shift, in these days."""
        f, later = t.follow_ups, t.follow_ups.alias("later")
        newer = select(later.c.id).where(
            later.c.visit_id == f.c.visit_id, later.c.kind == f.c.kind, later.c.id > f.c.id
        )
        period = f.c.done_on.between(date.fromordinal(first), date.fromordinal(last))
        each = (
            select(people.owner_of_visit().label("person_id"), f.c.kind)
            .select_from(f.join(t.visits, t.visits.c.id == f.c.visit_id))
            .where(f.c.done, ~newer.exists(), period)
            .subquery()
        )
        counted = (
            func.max(case((each.c.kind == kind, 1), else_=0)).label(name)
            for name, kind in DONE_AFTER.items()
        )
        return select(each.c.person_id, *counted).group_by(each.c.person_id).subquery()

    def employments(self, name: str) -> list[str]:
        """All departments, or all jobs, that anybody is in."""
        column = t.standings.c[name]
        query = select(column).where(column.is_not(None)).distinct().order_by(column)
        with reading(self.engine) as connection:
            return list(connection.execute(query).scalars())
