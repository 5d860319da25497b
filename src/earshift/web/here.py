"""What every route works with: the store, who asks, and the rows behind the ids of an address."""

import contextlib
from collections.abc import Iterator
from datetime import date
from typing import Annotated

from fastapi import Depends, Request

from earshift import records
from earshift.clinic.session import Session
from earshift.days import today
from earshift.engine.refusal import Conflict
from earshift.store import Store
from earshift.store.accounts import Accounts
from earshift.web import models as m
from earshift.web import views
from earshift.web.identity import Identity, record_view
from earshift.web.live import Sessions
from earshift.web.settings import Settings


class Clinic:
    """The clinic of one request."""

    def __init__(self, request: Request) -> None:
        state = request.app.state
        self.store: Store = state.store
        self.accounts: Accounts = state.accounts
        self.sessions: Sessions = state.sessions
        self.settings: Settings = state.settings
        self._request = request

    @property
    def today(self) -> date:
        return today(self.settings.zone)

    def viewed(self, user: Identity, subject: str, action: str = "view", **details: object) -> None:
        """A line in the audit: this was shown to that user. `details` are nothing typed."""
        record_view(self._request, user, subject, action, **details)

    def row(self, kind: str, handle: str) -> int:
        """The row of a random id."""
        return self.store.behind(kind, handle)

    def person(self, handle: str) -> records.Person:
        return self.store.person(self.row("people", handle))

    def device(self, handle: str) -> records.Device:
        return self.store.device(self.row("devices", handle))

    def visit(self, handle: str) -> records.Visit:
        return self.store.visit(self.row("visits", handle))

    def exam_id(self, handle: str) -> int:
        """Of an exam with tones; an audiogram from elsewhere has none."""
        exam_id = self.row("exams", handle)
        if self.store.exam(exam_id).kind == "audiogram":
            raise Conflict("this audiogram came from another source and has no tones")
        return exam_id

    @contextlib.contextmanager
    def changing(self, handle: str, user: str, *states: str) -> Iterator[Session]:
        """The session of an exam in one of these states, for this request alone."""
        with self.sessions.changing(self.exam_id(handle), user) as session:
            if session.record.state not in states:
                raise Conflict(f"the exam is {session.record.state}")
            yield session

    def exam(self, session: Session, user: str) -> m.Exam:
        return views.exam(
            self.store, self.accounts, session, user, position=views.position(session.snapshot)
        )


def qr_code(text: str) -> list[str]:
    """A text as a QR code, rows of 1 and 0 without the quiet zone around them."""
    import segno

    code = segno.make_qr(text, error="m")
    return ["".join("1" if dark else "0" for dark in row) for row in code.matrix]


Here = Annotated[Clinic, Depends(Clinic)]
