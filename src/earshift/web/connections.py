"""How many connections the server holds and for how long, where no proxy guards it.

A connection that does not get its request across in time is closed, and so is one that does not
take its answer. One address has a share of all connections, so that a single machine cannot keep
everybody else out.
"""

import asyncio
from collections import Counter
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 400  # of one worker
MOST_OF_ONE_ADDRESS = 80  # a clinic may share one; a browser holds six
REQUEST_SECONDS = 20  # for the head of a request
BODY_SECONDS = 120  # for the rest: ten megabytes over a slow line
ANSWER_SECONDS = 60  # for whoever reads an answer to take the next part of it
KEEP_ALIVE_SECONDS = 15  # between two requests


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, with limits on time and number."""

    by_address: ClassVar[Counter[str]] = Counter()
    most_of_one_address = MOST_OF_ONE_ADDRESS
    _deadline: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _counted: str | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        too_many = len(self.connections) > MOST_CONNECTIONS
        if too_many or self.by_address[address] >= self.most_of_one_address:
            transport.abort()
            return
        self._counted = address
        self.by_address[address] += 1
        self._set_deadline(REQUEST_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_deadline()
        self._clear_stalled()
        if self._counted is not None:
            self.by_address[self._counted] -= 1
            if not self.by_address[self._counted]:
                del self.by_address[self._counted]
            self._counted = None
        super().connection_lost(exc)

    # One deadline for the head of a request, another for its body, none while it is answered.
    # Between two requests the server has its own.

    def data_received(self, data: bytes) -> None:
        before = self.conn.their_state
        super().data_received(data)
        now = self.conn.their_state
        if now is h11.SEND_BODY:
            if before is not h11.SEND_BODY:
                self._set_deadline(BODY_SECONDS)
        elif now is not h11.IDLE:
            self._clear_deadline()
        elif self._deadline is None:  # the head has begun: not anew with each byte
            self._set_deadline(REQUEST_SECONDS)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE:
            self._clear_deadline()

    def _set_deadline(self, seconds: float) -> None:
        self._clear_deadline()
        self._deadline = self.loop.call_later(seconds, self._give_up)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._clear_stalled()
        self._stalled = self.loop.call_later(ANSWER_SECONDS, self._give_up)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._clear_stalled()

    def _clear_stalled(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()


class ProxiedProtocol(BoundedProtocol):
    """The same behind a proxy, whose address is everybody's."""

    most_of_one_address = MOST_CONNECTIONS
