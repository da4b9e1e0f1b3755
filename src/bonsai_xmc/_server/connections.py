"""Connections whose clients send the head of a request slowly, or without end: they are closed."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MAX_HEAD = 65_536  # bytes of the request line and the headers


class Connection(HttpToolsProtocol):
    """A connection that is closed if no request begins for some time."""

    seconds: float  # after the second one of two looks without a new request it is closed

    @classmethod
    def with_limit(cls, seconds: float) -> type[asyncio.Protocol]:
        return type(cls.__name__, (cls,), {"seconds": seconds})

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._seen: Any = None  # the last request at the last look
        self._head = 0  # bytes since the last request
        self._timer = self.loop.call_later(self.seconds, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._head += len(data)
        super().data_received(data)
        if not self._is_idle():
            self._head = 0
        elif self._head > _MAX_HEAD:
            self.transport.close()

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _look(self) -> None:
        if self._is_idle() and self.cycle is self._seen:
            self.transport.close()
            return
        self._seen = self.cycle
        self._timer = self.loop.call_later(self.seconds, self._look)
