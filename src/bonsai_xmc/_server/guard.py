"""The wrapper of all requests: limits, API key, timeouts, headers, counters and the log."""

import asyncio
import hmac
import ipaddress
import math
import mmap
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from bonsai_xmc._server.connections import MAX_HEAD
from bonsai_xmc._server.http import Problem
from bonsai_xmc._server.log import LOG, log
from bonsai_xmc._server.routes import OPEN, OTHER, is_annifs

if TYPE_CHECKING:
    from bonsai_xmc._server.app import Service

_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "server": "bonsai-xmc",
}
FAILED = Problem(500, "the server failed; its log has the cause")
_SEND_KEY = "send it as the header X-API-Key, or as Authorization: Bearer"
_CLIENTS = 65_536  # entries in the table of rates; clients with the same entry share a rate
_BURST = 10.0  # minimum number of requests that may come at once


class Rates:
    """Requests a second for each client, in memory that all workers share.

    The table holds for each client the time until which its allowance is used up (the generic cell rate
    algorithm). It is not locked: workers that write at the same time may admit a request too many.
    """

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._until = np.frombuffer(mmap.mmap(-1, 8 * _CLIENTS), np.float64)

    def wait(self, client: str) -> int:
        """Return the seconds that a client must wait; 0 admits the request and counts it."""
        if self._rate is None:
            return 0
        now, place = time.monotonic(), hash(_network(client)) % _CLIENTS
        until = max(now, float(self._until[place])) + 1 / self._rate
        ahead = until - now - max(_BURST, self._rate) / self._rate
        if ahead > 1e-9:
            return math.ceil(ahead)
        self._until[place] = until
        return 0


def _network(client: str) -> str:
    """Return an IPv4 address, or the network of an IPv6 address: its first 64 bits, which one client has."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return client
    return client if address.version == 4 else str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))


class Guard:
    """The ASGI application with its limits, as the server calls it."""

    def __init__(self, app: Any, service: "Service", routes: list[tuple[Any, str]], rates: Rates) -> None:
        self._app, self._service, self._settings = app, service, service.settings
        self._routes, self._rates = routes, rates

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin = time.perf_counter()
        sent = {"status": 0}
        extra = _HEADERS | ({"access-control-allow-origin": "*"} if is_annifs(scope["path"]) else {})
        unread = _has_long_body(scope["headers"])

        async def read() -> Any:
            nonlocal unread
            message = await receive()
            unread = unread and message.get("more_body", False)
            return message

        async def watch(message: Any) -> None:
            if message["type"] == "http.response.start":
                sent["status"] = message["status"]
                last = {"connection": "close"} if unread else {}
                message["headers"] = [
                    *message["headers"],
                    *((k.encode(), v.encode()) for k, v in (extra | last).items()),
                ]
            await send(message)

        service = self._service
        service.under_way += 1
        service.counters.under_way(1)
        try:
            await self._checked(scope, read, watch, sent)
        finally:
            service.under_way -= 1
            service.counters.under_way(-1)
            self._note(scope, sent["status"] or 499, time.perf_counter() - begin)

    def _note(self, scope: Any, status: int, seconds: float) -> None:
        """Count a request, and write its line."""
        self._service.counters.request(self._route(scope), status, seconds)
        line = {"client": _client(scope), "method": scope["method"], "path": scope["path"], "status": status}
        if "bonsai.model" in scope:
            line["model"] = scope["bonsai.model"]
        log("request", **line, ms=round(1e3 * seconds, 2))

    async def _checked(self, scope: Any, receive: Any, send: Any, sent: dict[str, int]) -> None:
        settings, service = self._settings, self._service
        try:
            self._check(scope)
            async with asyncio.timeout(settings.timeout):
                await self._app(scope, receive, send)
            return
        except Problem as error:
            problem = error
        except TimeoutError:
            problem = service.overload("it took too long")
        except Exception:
            LOG.exception("error", extra={"fields": {"path": scope["path"]}})
            problem = FAILED
        if not sent["status"]:
            await problem.response()(scope, receive, send)

    def _check(self, scope: Any) -> None:
        settings, headers = self._settings, scope["headers"]
        hosts = sum(name == b"host" for name, _ in headers)
        if hosts > 1 or (hosts == 0 and scope["http_version"] == "1.1"):
            raise Problem(400, f"there are {hosts} headers Host, but must be one")
        if scope["path"] in ("/health", "/ready", "/metrics"):
            pass  # a busy server answers these, too
        elif self._service.under_way > settings.max_requests:
            raise self._service.overload("too many requests are under way")
        if scope["path"] in OPEN or scope["method"] == "OPTIONS":
            return
        if seconds := self._rates.wait(_client(scope)):
            raise Problem(
                429,
                f"too many requests: at most {settings.rate:g} a second may be sent",
                {"retry-after": str(seconds)},
            )
        if settings.api_key is None:
            return
        key = _key_of(headers)
        if not hmac.compare_digest(key, settings.api_key.encode()):
            wrong = f"the API key is wrong; {_SEND_KEY}" if key else f"an API key is needed: {_SEND_KEY}"
            raise Problem(401, wrong, {"www-authenticate": "Bearer"})

    def _route(self, scope: Any) -> str:
        for route, name in self._routes:
            match, _ = route.matches(scope)
            if match.value:
                return name
        return OTHER


def _client(scope: Any) -> str:
    return scope["client"][0] if scope.get("client") else ""


def _key_of(headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return the key that a client sends; empty without one."""
    given = [(name, value.strip()) for name, value in headers if name in (b"x-api-key", b"authorization")]
    if len(given) > 1:
        raise Problem(400, "there are several keys: send one header X-API-Key or Authorization")
    for name, value in given:
        if name == b"x-api-key":
            return value
        scheme, _, key = value.partition(b" ")
        if scheme.lower() == b"bearer":
            return key.strip()
    return b""


def _has_long_body(headers: list[tuple[bytes, bytes]]) -> bool:
    """Return whether an unread body is too long to be read only to reuse its connection."""
    found = dict(headers)
    length = int(found.get(b"content-length", b"0"))
    return length > MAX_HEAD or b"transfer-encoding" in found or b"expect" in found
