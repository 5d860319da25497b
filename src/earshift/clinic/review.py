"""Review and sign-off of visits, and what follows from it: letter, follow-ups, words on work.

A reviewer signs what they saw: all that is stored of a visit, and what OSHA's rule says of its full
audiograms. From then on the visit's report and the letter to the person are made from what was
signed and from nothing else. Whoever sees more later signs again; that is an amendment, which names
the signature before it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any

from earshift.acts import FollowUp, RoomNoise, ShiftFinding, Signature, WorkRelation
from earshift.clinic.checklist import QUIET, cautions
from earshift.clinic.findings import findings_of
from earshift.clinic.site import letterhead, site_settings
from earshift.clinic.worklist import ears_meant, ears_to_keep
from earshift.days import today
from earshift.devices.noise import as_levels
from earshift.engine.refusal import Conflict, Refusal
from earshift.records import Visit, VisitBundle, visit_day
from earshift.report.content import Caution, Letterhead
from earshift.store import Store
from earshift.store.accounts import ROLES, Accounts
from earshift.store.signatures import canonical, plain_of, record_from, sha256_of

REVIEWER = "reviewer"
FOLLOW_UP_WORDS = {
    "letter": "told in writing",
    "protector": "hearing protector fitted or refitted",
    "training": "trained in the use of hearing protectors",
    "referral": "referred for further evaluation",
}


@dataclass(frozen=True)
class Review:
    """A visit as a reviewer sees it."""

    now: VisitBundle
    """What is stored, with the findings of its full audiograms."""
    signed: VisitBundle | None
    """What the newest signature is of; None: not signed, or erased."""
    follow_ups: tuple[FollowUp, ...]
    """What was done, the newest of each kind."""
    site: Letterhead
    """The site as it was signed; without a signature, as it is."""
    cautions: tuple[Caution, ...]
    """What the visit's checklist says against its results, by the quiet hours of that site."""
    letter_by: date | None
    """The last day on which the person may be told of a signed shift; None: nothing to tell."""

    @property
    def signatures(self) -> tuple[Signature, ...]:
        return self.now.signatures

    @property
    def seen(self) -> str:
        """The SHA-256 of what a signature would be of now."""
        return sha256_of(canonical(plain_of(_unsigned(self.now))))

    @property
    def changed_since(self) -> bool:
        """Whether something was stored after the newest signature."""
        return self.signed is not None and _unsigned(self.signed) != _unsigned(self.now)

    @property
    def obstacle(self) -> str:
        """Why the visit cannot be signed; else nothing."""
        if self.now.person.erased_at is not None:
            return "the person was erased"
        if self.now.visit.mode == "simulated":
            return "a simulated visit is nobody's hearing"
        states = {one.exam.state for one in self.now.exams}
        if states & {"open", "paused"}:
            return "a test of this visit is not finished"
        return "" if "done" in states else "nothing of this visit is finished"


def _unsigned(bundle: VisitBundle) -> VisitBundle:
    """Without what a signature itself adds, and what older ones did not know of a finding."""
    later: dict[str, Any] = {"baseline_db_hl": {}, "baseline_no_response_db_hl": {}}
    later |= {"shifts_db": {}, "at_least_hz": ()}
    findings = tuple(replace(one, shift_since=None, **later) for one in bundle.findings)
    return replace(bundle, findings=findings, signatures=(), seal="")


def require_reviewer(store: Store, author: str) -> str:
    """The author, who has to be a reviewer where the store has users at all."""
    known = {user.name: user for user in Accounts(store).users()}
    user = known.get(author)
    may = user is not None and user.active and ROLES.index(user.role) >= ROLES.index(REVIEWER)
    if known and not may:
        raise Conflict(
            "only a reviewer can do this",
            code="not-a-reviewer",
            advice="an active user with the role reviewer or admin has to be the author",
            got=author,
        )
    return author


def review_of(store: Store, visit_id: int) -> Review:
    """A visit as a reviewer sees it."""
    bundle = store.visit_bundle(visit_id)
    numbers = {one.exam.id for one in bundle.exams}
    erased = bundle.person.erased_at is not None
    findings = () if erased else tuple(findings_of(store, bundle.person.id, numbers))
    signatures = tuple(store.signatures(visit_id))
    content = store.signed_content(signatures[-1]) if signatures else None
    signed = None if content is None else record_from(VisitBundle, content["visit"])
    newest = {
        one.kind: one for one in store.follow_ups(bundle.person.id) if one.visit_id == visit_id
    }
    done = tuple(one for one in newest.values() if one.done)
    since = [one.shift_since for one in (signed.findings if signed else ()) if one.shift_since]
    settings = site_settings(store)
    days = timedelta(days=int(settings["letter_days"].value))
    quiet = (content or {"site": {}})["site"].get(QUIET, settings[QUIET].value)
    tested = {ear for one in bundle.exams for ear in one.exam.ears}
    return Review(
        replace(bundle, findings=findings, signatures=signatures),
        None if signed is None else replace(signed, signatures=signatures),
        done,
        letterhead(store) if content is None else _letterhead(content["site"]),
        cautions(bundle.visit.checklist, int(quiet), tested),
        min(since) + days if since else None,
    )


def _letterhead(settled: Mapping[str, Any]) -> Letterhead:
    return Letterhead(*(str(settled.get(name, "")) for name in ("site_name", "site_address")))


def report_of(store: Store, visit_id: int) -> tuple[VisitBundle, Letterhead, tuple[Caution, ...]]:
    """What a visit's report is made from: what was signed, or, while nobody has, what is stored."""
    review = review_of(store, visit_id)
    return review.signed or review.now, review.site, review.cautions


def sign(
    store: Store,
    visit_id: int,
    *,
    author: str,
    name: str,
    meaning: str,
    seen: str | None = None,
    amends: int | None = None,
    reason: str = "",
) -> Signature:
    """Sign a visit. `seen` is `Review.seen` of what the signer was shown, `amends` the newest
    signature that they know of."""
    review = review_of(store, visit_id)
    if review.obstacle:
        raise Conflict(f"{{visit}} cannot be signed: {review.obstacle}", visit=visit_id)
    if seen is not None and seen != review.seen:
        raise Conflict(
            "{visit} has changed since it was read, and nothing was signed",
            code="changed-meanwhile",
            advice="read it again before signing",
            visit=visit_id,
        )
    settled = {key: one.value for key, one in site_settings(store).items()}
    return store.sign_visit(
        replace(review.now, signatures=()),
        author=author,
        name=name,
        meaning=meaning,
        site=settled,
        amends=amends,
        reason=reason,
    )


def say_work_related(
    store: Store,
    exam_id: int,
    related: bool | None,
    *,
    author: str,
    name: str,
    reason: str,
    ears: Collection[str] = (),
) -> WorkRelation:
    """A professional's word on whether a standard threshold shift is related to work: that of these
    ears, or of every ear that the exam tested."""
    exam = store.exam(exam_id)
    meant = ears_meant(exam, ears)
    visit = store.visit(exam.visit_id)
    found = findings_of(store, visit.person_id, {exam_id})
    shifted = {one.ear for one in found if one.decision == "changed"}
    if not shifted or not set(ears) <= shifted:
        raise Conflict(
            "{exam} is no full audiogram with a standard threshold shift",
            advice="only of such a one the 300 log asks whether it is related to work",
            exam=exam_id,
        )
    kept = ears_to_keep(exam, meant)
    return store.say_work_related(
        exam_id, related, author=author, name=name, reason=reason, ears=kept
    )


def add_follow_up(
    store: Store,
    visit_id: int,
    kind: str,
    *,
    author: str,
    done_on: date,
    done_by: str,
    details: str = "",
    done: bool = True,
) -> FollowUp:
    """Something that was done because of a shift that was found on a visit."""
    visit = store.visit(visit_id)
    if not visit_day(visit) <= done_on <= today(visit.zone):
        raise Refusal(
            f"a follow-up is done between the visit ({visit_day(visit)}) and today", got=done_on
        )
    if kind == "letter" and done and not store.signatures(visit_id):
        raise Conflict(
            "{visit} was not signed: the letter follows from the signature", visit=visit_id
        )
    return store.add_follow_up(
        visit_id,
        kind,
        author=author,
        done_on=done_on,
        done_by=done_by,
        details=details,
        done=done,
    )


def letter_of(store: Store, visit_id: int) -> tuple[VisitBundle, Letterhead]:
    """What the letter is made from: what was signed, if that holds a standard threshold shift."""
    review = review_of(store, visit_id)
    if not review.signatures:
        raise Conflict(
            "{visit} was not signed: the letter follows from the signature", visit=visit_id
        )
    if review.signed is None:
        raise Conflict("what was signed of {visit} was erased with the person", visit=visit_id)
    if not any(one.is_shift for one in review.signed.findings):
        raise Conflict(
            "no standard threshold shift was signed with {visit}: there is nothing to tell",
            visit=visit_id,
        )
    return review.signed, review.site


@dataclass(frozen=True)
class VisitReviewed:
    """A visit with what was found, signed and done, as somebody's file lists it."""

    visit: Visit
    findings: tuple[ShiftFinding, ...]
    signatures: tuple[Signature, ...]
    follow_ups: tuple[FollowUp, ...]


def reviews_of(store: Store, person_id: int) -> list[VisitReviewed]:
    """Somebody's visits with a finished test, newest first."""
    erased = store.person(person_id).erased_at is not None
    found = [] if erased else findings_of(store, person_id)
    finished: dict[int, set[int]] = {}
    for exam in store.exams(person_id):
        if exam.state == "done":
            finished.setdefault(exam.visit_id, set()).add(exam.id)
    signatures = store.signatures_of(person_id)
    newest = {(one.visit_id, one.kind): one for one in store.follow_ups(person_id)}
    return [
        VisitReviewed(
            visit,
            tuple(one for one in found if one.exam_id in finished[visit.id]),
            tuple(one for one in signatures if one.visit_id == visit.id),
            tuple(one for one in newest.values() if one.visit_id == visit.id and one.done),
        )
        for visit in reversed(store.visits(person_id))
        if visit.id in finished and visit.mode != "simulated"
    ]


def add_room_noise(
    store: Store,
    levels: Mapping[str, object],
    *,
    author: str,
    measured_on: date,
    zone: str,
    room: str = "",
    instrument: str = "",
    device_id: int | None = None,
) -> RoomNoise:
    """What a meter showed in a room, octave band by octave band, in dB SPL."""
    if measured_on > today(zone):
        raise Refusal("room noise was measured today or before", got=measured_on)
    return store.add_room_noise(
        author=author,
        measured_on=measured_on,
        levels=as_levels(levels),
        room=room,
        instrument=instrument,
        device_id=device_id,
    )
