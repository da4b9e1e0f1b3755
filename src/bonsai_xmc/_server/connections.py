"""Connections: time limits, and orderly ends."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD = 65_536  # bytes of the request line and the headers
_LINGER_SECONDS = 5.0


class Connection(HttpToolsProtocol):
    """A connection that is closed if no request begins for some time, or if its headers are too long.

    If it ends in the middle of a request, further data of the client are read and dropped for some seconds:
    closing a connection with unread data resets it, and the client might not receive the answer.
    """

    seconds: float  # between two checks; it is closed after two without a new request
    leaving = False  # whether the worker ends: each answer is the last on its connection

    @classmethod
    def with_limit(cls, seconds: float) -> "type[Connection]":
        """Return a subclass for a worker, which holds the state that its connections share."""
        return type(cls.__name__, (cls,), {"seconds": seconds})

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._seen: Any = None  # the last request at the last check
        self._head = 0  # bytes of headers that are not complete
        self._in_head = self._in_request = self._lingers = False
        self._timer = self.loop.call_later(self.seconds, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._lingers:
            return
        super().data_received(data)
        self._head = self._head + len(data) if self._in_head else 0
        if self._head > MAX_HEAD:
            self.transport.close()

    def on_message_begin(self) -> None:
        self._in_head = self._in_request = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()
        self.cycle.transport = _Answers(self)
        if self.leaving:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        self._in_request = False
        super().on_message_complete()

    def end(self) -> None:
        """Close the connection after its last answer."""
        if not self._in_request:
            self.transport.close()
        elif not self._lingers and not self.transport.is_closing():
            self._lingers = True
            self.flow.resume_reading()
            with contextlib.suppress(OSError):  # the client is gone
                self.transport.write_eof()
            self._timer.cancel()
            self._timer = self.loop.call_later(_LINGER_SECONDS, self.transport.close)

    def leave(self, hand_over: Callable[[Any], bool] | None, wait: bool) -> None:
        """Prepare for the end of the worker; called repeatedly until the connection is closed.

        A connection without a request goes to another worker by `hand_over` if given; otherwise it stays open
        for a last request while `wait` is set.
        """
        if self.transport.is_closing():
            return
        if not self._is_idle():
            if not self.cycle.response_started:  # otherwise its headers are already sent
                self.cycle.keep_alive = False
        elif hand_over is not None and self._is_between_requests() and hand_over(self.transport):
            self.transport.abort()  # closes only the descriptor of this worker
        elif not wait:
            self.transport.close()

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _is_between_requests(self) -> bool:
        return not self._in_request and self.transport.get_write_buffer_size() == 0

    def _look(self) -> None:
        if self._is_idle() and self.cycle is self._seen:
            self.transport.close()
            return
        self._seen = self.cycle
        self._timer = self.loop.call_later(self.seconds, self._look)


class _Answers(asyncio.Transport):
    """The transport that a request writes its answer to; closing it ends the connection in order."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self.write = connection.transport.write  # type: ignore[method-assign]
        self.is_closing = connection.transport.is_closing  # type: ignore[method-assign]

    def close(self) -> None:
        self._connection.end()
