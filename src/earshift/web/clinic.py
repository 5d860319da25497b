"""The clinic's routes: people, devices, tests, exams and reports. Thin: the library decides."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, get_args
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Depends, Header, HTTPException, Query, Request, Response
from fastapi.responses import HTMLResponse

from earshift import __version__, records
from earshift.clinic import devices as clinic_devices
from earshift.clinic import history as monitor
from earshift.clinic.people import unfinished
from earshift.clinic.plan import (
    Plan,
    open_exam,
    plan_again,
    plan_continuation,
    plan_exam,
    plan_screen,
)
from earshift.clinic.references import references
from earshift.clinic.session import Session
from earshift.devices import calibration
from earshift.devices.delivery import Delivery
from earshift.devices.sound import Timing, retspl_presets, sound_of_calibration
from earshift.engine import rules, values
from earshift.engine.exam import Screen
from earshift.engine.refusal import Refusal
from earshift.engine.stimulus import Audiogram
from earshift.store import Store, StoreError
from earshift.store.accounts import LINK_HOURS, Accounts
from earshift.web import models as m
from earshift.web import shown
from earshift.web.identity import Examiner, saw
from earshift.web.listen import break_off, make_ready
from earshift.web.live import Sessions
from earshift.web.settings import Settings

router = APIRouter(prefix="/api")

PAGE = 50
DUE_AFTER = timedelta(days=365)  # 29 CFR 1910.95(g)(6): at least annually
LONGEST_CALIBRATION = timedelta(days=2 * 366)  # 29 CFR 1910.95(h)(5): exhaustive, every two years
RETEST_WITHIN = timedelta(days=30)  # 29 CFR 1904.10(b)(4)
UPLOAD_KINDS = ("auto", "csv", "mie", "fhir", "nhanes")


class Clinic:
    """What every route works with."""

    def __init__(self, request: Request) -> None:
        state = request.app.state
        self.store: Store = state.store
        self.accounts: Accounts = state.accounts
        self.sessions: Sessions = state.sessions
        self.settings: Settings = state.settings
        self.request = request

    @property
    def today(self) -> date:
        return shown.today_in(self.settings.zone)

    def person(self, handle: str) -> records.Person:
        return self.store.person(shown.behind(self.store, "people", handle))

    def device(self, handle: str) -> records.Device:
        return self.store.device(shown.behind(self.store, "devices", handle))

    def exam_id(self, handle: str) -> int:
        """Of an exam with tones; an audiogram from elsewhere has none."""
        exam_id = shown.behind(self.store, "exams", handle)
        if self.store.exam(exam_id).kind == "audiogram":
            raise HTTPException(HTTPStatus.CONFLICT, "this audiogram came from elsewhere, whole")
        return exam_id

    @contextlib.contextmanager
    def changing(self, handle: str, user: str, *states: str) -> Iterator[Session]:
        """The session of an exam in one of these states, for this request alone."""
        with self.sessions.changing(self.exam_id(handle), user) as session:
            if session.record.state not in states:
                raise HTTPException(HTTPStatus.CONFLICT, f"the exam is {session.record.state}")
            with refusals():
                yield session

    def position(self, record: records.ExamRecord) -> m.Counted:
        """The how-manieth exam of its visit this is."""
        of_visit = [
            one.id
            for one in self.store.exams(self.store.visit(record.visit_id).person_id)
            if one.visit_id == record.visit_id and one.kind != "audiogram"
        ]
        return m.Counted(now=sorted(of_visit).index(record.id) + 1, of=len(of_visit))

    def exam(self, session: Session, user: str) -> m.Exam:
        return shown.exam_shown(
            self.store, self.accounts, session, user, position=self.position(session.record)
        )


Here = Annotated[Clinic, Depends(Clinic)]


@contextlib.contextmanager
def refusals(status: HTTPStatus = HTTPStatus.CONFLICT) -> Iterator[None]:
    """What the library refuses becomes an answer that says why."""
    try:
        yield
    except ValueError as error:
        raise shown.refusal(error, status) from None


# People


@router.post("/people/search")
def search_people(wanted: m.PersonSearch, here: Here, user: Examiner) -> m.People:
    """A page of people; in the body, so that no name stands in an address."""
    after = 0 if wanted.after is None else shown.behind(here.store, "people", wanted.after)
    text = (wanted.text or "").strip() or None
    found = here.store.people(after=after, limit=PAGE + 1, search=text)
    page = shown.people(here.store, found[:PAGE])
    here.store.add_audit(author=user.name, action="search", subject="people")
    return m.People(people=page, next=page[-1].id if len(found) > PAGE else None)


@router.post("/people", status_code=HTTPStatus.CREATED)
def add_person(new: m.NewPerson, here: Here, user: Examiner) -> m.Person:
    """A new person; a code or a name is needed, and a code must not be another person's."""
    identity = _identity(new.model_dump())
    if identity["code"] is None and identity["name"] is None:
        raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, "give a code or a name")
    _check_birth(identity["birth_date"], here.today)
    try:
        added = here.store.add_person(author=user.name, **identity)
    except StoreError:
        raise HTTPException(HTTPStatus.CONFLICT, "this code is another person's already") from None
    return shown.person(here.store, added)


def _identity(given: dict[str, Any]) -> dict[str, Any]:
    """Blank text is no text."""
    return {
        name: (value.strip() or None) if isinstance(value, str) else value
        for name, value in given.items()
    }


def _check_birth(born: date | None, today: date) -> None:
    if born is not None and not date(1880, 1, 1) <= born <= today:
        raise HTTPException(
            HTTPStatus.UNPROCESSABLE_ENTITY, "a date of birth is not in the future nor before 1880"
        )


@router.get("/people/{person}")
def person_file(person: m.Id, here: Here, user: Examiner) -> m.PersonFile:
    """Somebody's exams, notes and history over time."""
    found = here.person(person)
    saw(here.request, user, f"people:{found.id}")
    exams = here.store.exams(found.id)
    said = shown.summaries(here.store, exams)
    real = [(exam, one) for exam, one in zip(exams, said, strict=True) if one.sound != "simulated"]
    return m.PersonFile(
        **shown.person(here.store, found).model_dump(),
        exams=said,
        baselines={ear: _baseline(here, found.id, ear) for ear in values.EARS},
        notes=[m.NoteShown.model_validate(note) for note in here.store.notes(found.id)],
        history=shown.history(here.store, [e for e, _ in real], [s for _, s in real]),
    )


def _baseline(here: Clinic, person_id: int, ear: str) -> m.EarBaseline:
    chosen = here.store.baseline(person_id, ear)
    exam_id = None if chosen is None else chosen.exam_id
    if exam_id is None:
        usable, _ = references(here.store, person_id, ear)
        exam_id = usable[0].id if usable else None
    return m.EarBaseline(
        exam=_handle(here, exam_id),
        chosen_by=None if chosen is None else chosen.author,
        reason=None if chosen is None else chosen.reason,
    )


def _handle(here: Clinic, exam_id: int | None) -> str | None:
    return None if exam_id is None else here.store.handle("exams", exam_id)


@router.get("/people/{person}/monitoring")
def monitoring(person: m.Id, here: Here, user: Examiner) -> dict[str, m.EarMonitored]:
    """Every exam of each ear against its baseline, and whether that should be revised."""
    found = here.person(person)
    saw(here.request, user, f"people:{found.id}")
    ears = {}
    for ear in values.EARS:
        history = monitor.ear_history(here.store, found.id, ear)
        proposal = history.proposal
        ears[ear] = m.EarMonitored(
            baseline=_baseline(here, found.id, ear),
            occasions=[
                m.OccasionShown(
                    exam=here.store.handle("exams", one.exam_id),
                    kind=one.kind,
                    on=one.day,
                    against=_handle(here, one.against),
                    rule=one.rule,
                    decision=one.decision,
                    p_changed=one.p_changed,
                    shifts_db={f"{f:g}": shift for f, shift in one.shifts_db},
                    note=one.note,
                )
                for one in history.occasions
            ],
            proposal=None if proposal is None else proposal.words,
            proposed_exam=None if proposal is None else _handle(here, proposal.exam_id),
        )
    return ears


@router.post("/people/{person}/baseline")
def choose_baseline(person: m.Id, new: m.NewBaseline, here: Here, user: Examiner) -> m.EarBaseline:
    """Choose what an ear is compared with from now on: a professional's decision, kept for good."""
    found = here.person(person)
    exam_id = shown.behind(here.store, "exams", new.exam)
    with refusals():
        monitor.revise_baseline(
            here.store, found.id, new.ear, exam_id, author=user.name, reason=new.reason
        )
    return _baseline(here, found.id, new.ear)


@router.post("/people/{person}/correct")
def correct_person(
    person: m.Id, correction: m.PersonCorrection, here: Here, user: Examiner
) -> m.Person:
    """Correct what is known of somebody; fields that are not sent stay, null takes away."""
    found = here.person(person)
    changes = _identity(correction.model_dump(exclude_unset=True))
    reason = changes.pop("reason")
    _check_birth(changes.get("birth_date"), here.today)
    if not changes:
        raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, "nothing to correct was sent")
    with refusals():
        changed = here.store.correct_person(found.id, author=user.name, reason=reason, **changes)
    return shown.person(here.store, changed)


@router.post("/people/{person}/notes", status_code=HTTPStatus.CREATED)
def add_note(person: m.Id, note: m.NewNote, here: Here, user: Examiner) -> m.NoteShown:
    found = here.person(person)
    with refusals():
        added = here.store.add_note(found.id, author=user.name, text=note.text)
    return m.NoteShown.model_validate(added)


@router.post("/people/{person}/audiograms", status_code=HTTPStatus.CREATED)
def type_audiogram(
    person: m.Id, typed: m.NewAudiogram, here: Here, user: Examiner
) -> m.ExamSummary:
    """A reference typed in from paper."""
    found = here.person(person)
    if typed.measured_on is not None and not date(1930, 1, 1) <= typed.measured_on <= here.today:
        raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, "the day measured cannot be right")
    with refusals(HTTPStatus.UNPROCESSABLE_ENTITY):
        audiogram = Audiogram(
            {float(f): level for f, level in typed.thresholds.items()},
            no_response_db_hl={float(f): level for f, level in typed.no_response.items()},
        )
    zone = here.settings.zone
    measured = None
    if typed.measured_on is not None:  # at noon: a day has no moment of its own
        noon = datetime.combine(typed.measured_on, datetime.min.time().replace(hour=12))
        measured = noon.replace(tzinfo=ZoneInfo(zone))
    with refusals():
        opened = here.store.open_visit(
            found.id, author=user.name, zone=zone, mode="imported", started_at=measured
        )
        exam = here.store.open_exam(
            opened.id,
            author=user.name,
            ear=typed.ear,
            kind="audiogram",
            design=audiogram.to_dict(),
            engine_version=__version__,
            measured_at=measured,
            source=typed.source or "typed in",
        )
    return shown.summary(here.store, exam)


@router.post(
    "/imports",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
            },
        }
    },
)
async def import_file(
    request: Request,
    here: Here,
    user: Examiner,
    format: Annotated[str, Query(pattern=f"^({'|'.join(UPLOAD_KINDS)})$")] = "auto",
) -> m.Imported:
    """Audiograms from a file: all of its rows, or none when one cannot be taken."""
    from starlette.concurrency import run_in_threadpool

    content = await request.body()
    if not content:
        raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, "the file is empty")
    return await run_in_threadpool(_import, content, format, here, user.name)


def _import(content: bytes, kind: str, here: Clinic, author: str) -> m.Imported:
    from earshift.formats import read_references

    if kind == "auto":
        kind = "fhir" if content.lstrip()[:1] == b"{" else "csv"
        if content.startswith(b"HEADER RECORD"):
            kind = "nhanes"
    with tempfile.TemporaryDirectory(prefix="earshift-import-") as folder:
        file = Path(folder) / "upload"  # never the client's name
        file.write_bytes(content)
        try:
            found = read_references(file, kind, timezone=here.settings.zone)
        except ValueError as error:
            told = ValueError(str(error).replace(str(file), "the file"))
            raise shown.refusal(told, HTTPStatus.UNPROCESSABLE_ENTITY) from None
    if found.rejected:
        rows = "; ".join(
            f"row {one.row}: {shown.refusal(ValueError(one.reason)).detail}"
            for one in found.rejected[:5]
        )
        raise HTTPException(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f"{len(found.rejected)} rows cannot be taken, and nothing was stored: {rows}",
        )
    with refusals():
        imported = here.store.import_audiograms(
            found.accepted, author=author, zone=here.settings.zone
        )
    visits = {one.visit_id for one in (*imported.added, *imported.known)}
    owners = sorted({here.store.visit(number).person_id for number in sorted(visits)[:20]})
    return m.Imported(
        added=len(imported.added),
        known=len(imported.known),
        people=shown.people(here.store, [here.store.person(number) for number in owners]),
    )


# The day


@router.get("/worklist")
def worklist(here: Here, user: Examiner) -> m.Worklist:
    """Who has to be tested: unfinished exams, retests of changed ears, tests that are due."""
    saw(here.request, user, "worklist")
    now = datetime.now(UTC)
    items: list[m.WorkItem] = []
    exams = here.store.unfinished_exams(since=now - RETEST_WITHIN)
    items += _items(here, exams, "unfinished", timedelta(0))
    items += _items(here, _to_retest(here, now), "retest", RETEST_WITHIN)
    due = here.store.people_tested_before(now - DUE_AFTER)
    people = shown.people(here.store, [one for one, _ in due])
    items += [
        m.WorkItem(person=one, why="due", on=(last + DUE_AFTER).date(), exam=None)
        for one, (_, last) in zip(people, due, strict=True)
    ]
    devices = [shown.device(here.store, one, here.today) for one in here.store.devices()]
    attention = [one for one in devices if _needs_attention(one)]
    return m.Worklist(today=here.today, items=items, devices=attention)


def _items(
    here: Clinic, exams: list[records.ExamRecord], why: str, within: timedelta
) -> list[m.WorkItem]:
    found = []
    for exam, said in zip(exams, shown.summaries(here.store, exams), strict=True):
        of = here.store.visit(exam.visit_id)
        on = (of.started_at.astimezone(ZoneInfo(of.zone)) + within).date()
        person = shown.person(here.store, here.store.person(of.person_id))
        found.append(m.WorkItem(person=person, why=why, on=on, exam=said))
    return found


def _to_retest(here: Clinic, now: datetime) -> list[records.ExamRecord]:
    """Screens that found a change and that no later exam of the same ear has followed."""
    found = []
    for exam in here.store.screens_done_since(now - RETEST_WITHIN):
        results = here.store.results(exam.id)
        verdict = results[-1].shown["verdict"] if results else None
        if verdict is None or verdict["decision"] != "changed":
            continue
        of = here.store.visit(exam.visit_id)
        later = [
            one
            for one in here.store.exams(of.person_id, ear=exam.ear)
            if one.id > exam.id and one.state == "done" and one.kind != "audiogram"
        ]
        if not later:
            found.append(exam)
    return found


def _needs_attention(device: m.Device) -> bool:
    return (
        device.blocked is not None
        or device.calibration.state == calibration.EXPIRED
        or device.daily_check.state == "missing"
    )


@router.get("/rules")
def list_rules(_: Examiner) -> list[m.RuleShown]:
    return [
        m.RuleShown(
            name=rule.name,
            text=rule.text,
            source=rule.source,
            unverified=rules.unverified_note(rule),
        )
        for rule in rules.RULES.values()
    ]


# Devices


@router.get("/devices")
def list_devices(here: Here, _: Examiner) -> list[m.Device]:
    return [shown.device(here.store, one, here.today) for one in here.store.devices()]


@router.post("/devices", status_code=HTTPStatus.CREATED)
def add_device(new: m.NewDevice, here: Here, user: Examiner) -> m.Device:
    """An audiometer, or with a fingerprint this browser with its earphones."""
    values = new.model_dump()
    values["fingerprint"] = values["fingerprint"] or {}
    with refusals(HTTPStatus.UNPROCESSABLE_ENTITY):
        added = here.store.add_device(author=user.name, **values)
    return shown.device(here.store, added, here.today)


@router.get("/devices/{device}")
def show_device(device: m.Id, here: Here, _: Examiner) -> m.Device:
    return shown.device(here.store, here.device(device), here.today)


@router.post("/devices/{device}/calibrations", status_code=HTTPStatus.CREATED)
def add_calibration(device: m.Id, new: m.NewCalibration, here: Here, user: Examiner) -> m.Device:
    """A laboratory's calibration. RETSPL belongs to the coupler that it was measured in."""
    found = here.device(device)
    with refusals(HTTPStatus.UNPROCESSABLE_ENTITY):
        table = _calibration_table(new, found)
        if new.done_on > here.today:
            raise Refusal("a calibration is not done in the future")
        if new.due_on > new.done_on + LONGEST_CALIBRATION:
            raise Refusal("a calibration is due again after two years at most")
        here.store.add_calibration(
            found.id,
            author=user.name,
            done_on=new.done_on,
            due_on=new.due_on,
            laboratory=new.laboratory,
            coupler=new.coupler,
            kind=new.kind,
            table=table,
        )
    return shown.device(here.store, found, here.today)


def _calibration_table(new: m.NewCalibration, device: records.Device) -> dict[str, Any]:
    if not device.fingerprint:
        if new.full_scale_db_spl is not None:
            raise Refusal("an audiometer keeps its table to itself; it needs none here")
        return {}
    if new.retspl is None or new.full_scale_db_spl is None:
        raise Refusal("a browser's sound needs retspl and full_scale_db_spl of both ears")
    values: dict[str, float]
    table: dict[str, Any] = {"full_scale_db_spl": new.full_scale_db_spl}
    if isinstance(new.retspl, str):
        preset = retspl_presets().get(new.retspl)
        if preset is None:
            raise Refusal("there is no RETSPL table of this name")
        if device.transducer not in ("unknown", preset.transducer):
            raise Refusal(f"this RETSPL table is for {preset.transducer} earphones, not others")
        if preset.coupler != new.coupler:
            raise Refusal(f"this RETSPL table is for the coupler {preset.coupler}, not another")
        values = {f"{f:g}": level for f, level in preset.db_spl.items()}
        table["retspl_source"] = f"{preset.name}: {preset.source} ({preset.status})"
    else:
        values = new.retspl
        table["retspl_source"] = "entered with the calibration"
    table |= {"retspl_db": values, "floor_dbfs": new.floor_dbfs}
    sound = sound_of_calibration(table, device.name, device.fingerprint)  # refuses bad tables
    assert sound is not None
    return table


@router.get("/retspl")
def list_retspl(_: Examiner) -> list[m.RetsplShown]:
    """The shipped tables of sound pressure at 0 dB HL, each with its coupler and source."""
    return [
        m.RetsplShown(
            name=one.name,
            earphone=one.earphone,
            coupler=one.coupler,
            status=one.status,
            source=one.source,
            values={f"{f:g}": level for f, level in one.db_spl.items()},
        )
        for one in retspl_presets().values()
    ]


@router.post("/devices/{device}/checks", status_code=HTTPStatus.CREATED)
def add_check(device: m.Id, check: m.NewCheck, here: Here, user: Examiner) -> m.Device:
    """A daily check with somebody whose hearing is known; 10 dB or more blocks the device."""
    found = here.device(device)
    if not all(check.deviations_db.get(ear) for ear in get_args(m.Ear)):
        raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, "a check needs both ears")
    with refusals(HTTPStatus.UNPROCESSABLE_ENTITY):
        here.store.add_calibration(
            found.id,
            author=user.name,
            done_on=here.today,
            due_on=here.today,
            laboratory=check.listener,
            coupler="a listener's ears",
            kind="biological",
            table={"deviations_db": check.deviations_db},
        )
    return shown.device(here.store, found, here.today)


# Tests


@router.post("/people/{person}/tests", status_code=HTTPStatus.CREATED)
def begin_test(person: m.Id, new: m.NewTest, here: Here, user: Examiner) -> m.Test:
    """Plan and open the exams of one test: all of its ears, or none."""
    found = here.person(person)
    device = None if new.device is None else here.device(new.device)
    how, warnings = _delivery(here, new, device)
    ears = list(dict.fromkeys(new.ears))
    for ear in ears:
        if unfinished(here.store, found.id, ear):
            raise HTTPException(
                HTTPStatus.CONFLICT,
                f"an exam of the {ear} ear is not finished: go on with it, or give it up first",
            )
    device_id = None if device is None else device.id
    with refusals():
        plans = [_plan(here, new, found, ear, how, device_id) for ear in ears]
        for plan in plans:
            if isinstance(plan.sitting, Screen) and plan.sitting.done:
                raise Refusal(f"{plan.ear} ear: {plan.sitting.verdict()}")
        opened = here.store.open_visit(
            found.id,
            author=user.name,
            zone=here.settings.zone,
            mode=new.mode,
            device_id=device_id,
            checklist=new.checklist.model_dump(exclude_none=True),
        )
        exams = [open_exam(here.store, opened, plan, author=user.name) for plan in plans]
    return m.Test(
        visit=here.store.handle("visits", opened.id),
        exams=[_opened(here, exam, user.name) for exam in exams],
        warnings=list(warnings),
    )


def _plan(
    here: Clinic,
    new: m.NewTest,
    person: records.Person,
    ear: m.Ear,
    how: Delivery,
    device_id: int | None,
) -> Plan:
    if new.kind == "exam":
        return plan_exam(ear, delivery=how)
    rule = None if new.rule is None else rules.as_rule(new.rule, new.accept_unverified)
    reference = (new.reference or {}).get(ear)
    return plan_screen(
        here.store,
        person.id,
        ear,
        rule=rule,
        protocol=new.protocol,
        reference=None if reference is None else shown.behind(here.store, "exams", reference),
        device_id=device_id,
        delivery=how,
        today=here.today,
    )


def _delivery(
    here: Clinic, new: m.NewTest, device: records.Device | None
) -> tuple[Delivery, tuple[str, ...]]:
    """How the test is given, and what the examiner has to know about it."""
    remarks = () if device is None else _calibration_remarks(here, device, new.accept_calibration)
    with refusals(HTTPStatus.UNPROCESSABLE_ENTITY):
        timing = Timing() if new.timing is None else Timing(**new.timing.model_dump())
        sound = None if device is None else clinic_devices.sound_of(here.store, device, here.today)
        how = Delivery(
            answered_by=new.answered_by,
            mode=new.mode,
            sound=sound,
            timing=timing,
            loud_confirmed=new.loud_confirmed,
            practice=new.practice,
            remarks=remarks if timing.unusual is None else (*remarks, timing.unusual),
        )
    return how, how.remarks


def _calibration_remarks(here: Clinic, device: records.Device, accepted: bool) -> tuple[str, ...]:
    """What is wrong with a device's calibration: refused, or with consent on every result."""
    now = shown.device(here.store, device, here.today)
    if now.blocked is not None:
        raise HTTPException(HTTPStatus.CONFLICT, now.blocked)
    remarks = []
    if now.calibration.state == calibration.EXPIRED:
        remarks.append(f"The calibration expired on {now.calibration.due_on}.")
    if now.daily_check.state == "missing":
        remarks.append("The device was not checked with a listener today.")
    if remarks and not accepted:
        raise HTTPException(
            HTTPStatus.CONFLICT,
            f"{' '.join(remarks)} Mend that, or accept it: every result will say so",
        )
    return tuple(remarks)


# Exams


@router.get("/exams/{exam}")
def show_exam(exam: m.Id, here: Here, user: Examiner) -> m.Exam:
    exam_id = here.exam_id(exam)
    saw(here.request, user, f"exams:{exam_id}")
    with here.sessions.looking(exam_id, user.name) as session:
        return here.exam(session, user.name)


@router.get("/exams/{exam}/live", responses={304: {"description": "nothing has changed"}})
def live_exam(
    exam: m.Id,
    here: Here,
    user: Examiner,
    response: Response,
    if_none_match: Annotated[str | None, Header(max_length=200)] = None,
) -> m.Live:
    """The exam as it moves. Ask with If-None-Match, and nothing is sent when nothing changed."""
    exam_id = here.exam_id(exam)
    with here.sessions.looking(exam_id, user.name) as session:
        void = sum(trial.voided_at is not None for trial in session.trials)
        state = session.record.state
        tag = f'"{exam_id}-{len(session.trials)}-{void}-{session.presses}-{state}"'
        if if_none_match == tag:
            raise HTTPException(HTTPStatus.NOT_MODIFIED)
        if if_none_match is None:  # later looks of the same page are the same look
            saw(here.request, user, f"exams:{exam_id}")
        response.headers["ETag"] = tag
        return m.Live(**here.sessions.live(exam_id, user.name))


@router.post("/exams/{exam}/answer")
def answer_exam(exam: m.Id, given: m.ExaminersAnswer, here: Here, user: Examiner) -> m.Play:
    """The examiner answers for a person who raises a hand. Sent twice it changes nothing."""
    exam_id = here.exam_id(exam)
    how = Delivery.from_dict(here.store.exam(exam_id).delivery)
    if how.answered_by == "listener":
        raise HTTPException(HTTPStatus.CONFLICT, "the listener answers this exam")
    if given.played_db is not None and how.sound is not None:
        raise HTTPException(HTTPStatus.CONFLICT, "the device plays what is asked, no other level")
    with refusals(HTTPStatus.UNPROCESSABLE_ENTITY):
        session = here.sessions.answer(
            exam_id, user.name, given.trial, given.heard, given.reaction_ms, given.played_db
        )
    return shown.play(session, here.position(session.record))


@router.post("/exams/{exam}/ready")
def ready_exam(exam: m.Id, checked: m.Ready, here: Here, user: Examiner) -> m.Play:
    """The examiner has checked the set-up of a device that plays; the exam goes on."""
    with here.changing(exam, user.name, "open", "paused") as session:
        _refuse_if_listeners(session)
        make_ready(session, checked, here.today, "set-up checked by the examiner")
        return shown.play(session, here.position(session.record))


@router.post("/exams/{exam}/stop")
def stop_exam(exam: m.Id, stopped: m.Stopped, here: Here, user: Examiner) -> m.Play:
    """The sound was stopped at the desk: what was playing is void, and the set-up is to be
    checked again.
    """
    with here.changing(exam, user.name, "open", "paused") as session:
        _refuse_if_listeners(session)
        break_off(session, stopped.trial, stopped.reason)
        return shown.play(session, here.position(session.record))


def _refuse_if_listeners(session: Session) -> None:
    if session.delivery.answered_by == "listener":
        raise Refusal("the listener goes on, after checking the set-up")


@router.post("/exams/{exam}/undo")
def undo_answer(exam: m.Id, why: m.Reason, here: Here, user: Examiner) -> m.Exam:
    """Take the newest answer back: it stays, void, and the same is asked again."""
    with here.changing(exam, user.name, "open") as session:
        session.undo(why.reason or "taken back by the examiner")
        return here.exam(session, user.name)


@router.post("/exams/{exam}/pause")
def pause_exam(exam: m.Id, why: m.Reason, here: Here, user: Examiner) -> m.Exam:
    with here.changing(exam, user.name, "open") as session:
        session.pause(why.reason or "paused by the examiner")
        return here.exam(session, user.name)


@router.post("/exams/{exam}/resume")
def resume_exam(exam: m.Id, why: m.Reason, here: Here, user: Examiner) -> m.Exam:
    """Go on. A listener who answers alone goes on by checking the set-up instead."""
    with here.changing(exam, user.name, "open", "paused") as session:
        _refuse_if_listeners(session)
        if session.delivery.sound is not None:
            raise Refusal("the exam goes on when the set-up was checked")
        session.resume(why.reason or "resumed by the examiner")
        return here.exam(session, user.name)


@router.post("/exams/{exam}/finish")
def finish_exam(exam: m.Id, why: m.Reason, here: Here, user: Examiner) -> m.Exam:
    """End the exam now, with what is known: the result is stored as it is shown."""
    with here.changing(exam, user.name, "open", "paused") as session:
        if not session.tones:
            raise Refusal("nothing was answered yet: there is nothing to show")
        if session.record.state == "paused":
            session.resume(why.reason or "opened to be finished")
        session.finish()
        return here.exam(session, user.name)


@router.post("/exams/{exam}/abandon")
def abandon_exam(exam: m.Id, why: m.Reason, here: Here, user: Examiner) -> m.Exam:
    """Give the exam up: its answers stay, and it gets no result."""
    with here.changing(exam, user.name, "open", "paused") as session:
        session.abandon(why.reason or "given up by the examiner")
        return here.exam(session, user.name)


@router.post("/exams/{exam}/retest", status_code=HTTPStatus.CREATED)
def retest(exam: m.Id, here: Here, user: Examiner) -> m.Exam:
    """The same question about the same ear once more, at once and in the same visit."""
    return _follow(here, exam, user.name, plan_again)


@router.post("/exams/{exam}/continue", status_code=HTTPStatus.CREATED)
def continue_exam(exam: m.Id, here: Here, user: Examiner) -> m.Exam:
    """A full audiogram of the ear that begins with every tone of its screen."""
    return _follow(here, exam, user.name, plan_continuation)


def _follow(
    here: Clinic, handle: str, user: str, plan: Callable[[Store, records.ExamRecord], Plan]
) -> m.Exam:
    record = here.store.exam(here.exam_id(handle))
    if record.state not in ("done", "abandoned"):
        raise HTTPException(HTTPStatus.CONFLICT, "the exam is not finished yet")
    of = here.store.visit(record.visit_id)
    if unfinished(here.store, of.person_id, record.ear):
        raise HTTPException(HTTPStatus.CONFLICT, "another exam of this ear is not finished")
    obstacle = clinic_devices.why_not_go_on(here.store, record, here.today)
    if obstacle is not None:
        raise HTTPException(HTTPStatus.CONFLICT, obstacle)
    with refusals():
        exam = open_exam(here.store, of, plan(here.store, record), author=user)
        return _opened(here, exam, user)


def _opened(here: Clinic, exam: records.ExamRecord, user: str) -> m.Exam:
    """A new exam as the examiner sees it; one that a device plays waits for its set-up."""
    with here.sessions.changing(exam.id, user) as session:
        if session.delivery.sound is not None:
            session.pause("waiting for the set-up")
        return here.exam(session, user)


# Listeners and reports


@router.post("/visits/{visit_id}/link", status_code=HTTPStatus.CREATED)
def make_link(visit_id: m.Id, here: Here, user: Examiner) -> m.NewLink:
    """A link for the person tested: it can answer this visit's exams, and nothing else."""
    number = shown.behind(here.store, "visits", visit_id)
    of = here.store.visit(number)
    exams = [
        exam.id
        for exam in here.store.exams(of.person_id)
        if exam.visit_id == number
        and exam.state in ("open", "paused")
        and Delivery.from_dict(exam.delivery).answered_by == "listener"
    ]
    if not exams:
        raise HTTPException(
            HTTPStatus.CONFLICT, "this visit has no unfinished exam that a listener answers"
        )
    with refusals():
        secret = here.accounts.make_link(number, sorted(exams), user.name)
    if here.settings.single_user and of.mode == "self":  # whoever tests themselves may know
        here.accounts.release(number, user.name)
    expires = datetime.now(UTC) + timedelta(hours=LINK_HOURS)
    return m.NewLink(url=f"/listen#{secret}", expires_at=expires)


@router.delete("/visits/{visit_id}/link", status_code=HTTPStatus.NO_CONTENT)
def end_link(visit_id: m.Id, here: Here, user: Examiner) -> None:
    here.accounts.end_links(shown.behind(here.store, "visits", visit_id), user.name)


@router.post("/visits/{visit_id}/release", status_code=HTTPStatus.NO_CONTENT)
def release(visit_id: m.Id, wanted: m.Release, here: Here, user: Examiner) -> None:
    """Let the person tested see the verdict, or no longer."""
    number = shown.behind(here.store, "visits", visit_id)
    here.accounts.release(number, user.name, wanted.released)


@router.get("/visits/{visit_id}/report.html", response_class=HTMLResponse)
def report_html(visit_id: m.Id, here: Here, user: Examiner) -> HTMLResponse:
    """The visit's report as a page that needs nothing else."""
    from earshift.report import render_html

    number = shown.behind(here.store, "visits", visit_id)
    saw(here.request, user, f"visits:{number}")
    page = render_html(here.store.visit_bundle(number))
    return HTMLResponse(page, headers={"Content-Disposition": 'attachment; filename="report.html"'})


@router.get(
    "/visits/{visit_id}/report.pdf",
    response_class=Response,
    responses={200: {"content": {"application/pdf": {}}}},
)
def report_pdf(
    visit_id: m.Id,
    here: Here,
    user: Examiner,
    paper: Annotated[str, Query(pattern="^(a4|letter)$")] = "a4",
) -> Response:
    """The visit's report as PDF."""
    from earshift.report import write_pdf

    number = shown.behind(here.store, "visits", visit_id)
    saw(here.request, user, f"visits:{number}")
    with tempfile.TemporaryDirectory(prefix="earshift-report-") as folder:
        file = Path(folder) / "report.pdf"
        write_pdf(here.store.visit_bundle(number), file, paper)
        content = file.read_bytes()
    return Response(
        content,
        media_type="application/pdf",
        headers={"Content-Disposition": 'attachment; filename="report.pdf"'},
    )


# A simulated person


@router.get("/try/choices")
def try_choices(_: Examiner) -> m.TryChoices:
    from earshift.web import trying

    return m.TryChoices(**trying.choices())


@router.post("/try")
def try_it(wanted: m.Try, _: Examiner) -> m.Live:
    """A simulated person after so many tones. Nothing is stored."""
    from earshift.web import trying

    with refusals(HTTPStatus.UNPROCESSABLE_ENTITY):
        return m.Live(**trying.after(**wanted.model_dump()))
