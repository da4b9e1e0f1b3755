"""Numbers that all workers count together, in memory that they share; shown in Prometheus's text format."""

import mmap
import time
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import numpy as np

from bonsai_xmc._server.routes import COUNTERS

STATUSES = (200, 204, 400, 401, 403, 404, 405, 408, 413, 415, 429, 500, 503, 499)  # 499: the client went away
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024)

_ROUTE = {route: i for i, route in enumerate(COUNTERS)}
_STATUS = {status: i for i, status in enumerate(STATUSES)}
_REQUESTS = 0
_SECONDS = _REQUESTS + len(COUNTERS) * len(STATUSES)
_SECONDS_SUM = _SECONDS + len(SECONDS) + 1
_SIZES = _SECONDS_SUM + 1
_TEXTS = _SIZES + len(SIZES) + 1
_UNDER_WAY = _TEXTS + 1
_RELOADS = _UNDER_WAY + 1
_REFUSED_FILES = _RELOADS + 1
_WIDTH = _REFUSED_FILES + 1


class Counters:
    """A row of numbers for each slot. A worker writes its own slot; the sum over all is shown."""

    def __init__(self, n_slots: int = 1) -> None:
        memory = mmap.mmap(-1, 8 * n_slots * _WIDTH)  # shared with forked processes
        self._table = np.frombuffer(memory, np.float64).reshape(n_slots, _WIDTH)
        self._row = self._table[0]
        self._begin = time.time()

    def use(self, slot: int) -> None:
        """Count in this slot from now on; what a former worker left of requests under way is forgotten."""
        self._row = self._table[slot]
        self._row[_UNDER_WAY] = 0

    def request(self, route: str, status: int, seconds: float) -> None:
        place = _ROUTE[route] * len(STATUSES) + _STATUS.get(status, _STATUS[500])
        self._row[_REQUESTS + place] += 1
        self._row[_SECONDS + bisect_left(SECONDS, seconds)] += 1
        self._row[_SECONDS_SUM] += seconds

    def under_way(self, change: int) -> None:
        self._row[_UNDER_WAY] += change

    def batch(self, n_texts: int) -> None:
        self._row[_SIZES + bisect_left(SIZES, n_texts)] += 1
        self._row[_TEXTS] += n_texts

    def reloaded(self, accepted: bool) -> None:
        self._row[_RELOADS if accepted else _REFUSED_FILES] += 1

    def text(self) -> str:
        """All numbers in Prometheus's text format."""
        return "\n".join([*self._lines(self._table.sum(axis=0)), ""])

    def _lines(self, total: Any) -> Iterator[str]:
        yield "# HELP bonsai_requests_total Requests answered.\n# TYPE bonsai_requests_total counter"
        for route, i in _ROUTE.items():
            for status, j in _STATUS.items():
                if count := total[_REQUESTS + i * len(STATUSES) + j]:
                    yield f'bonsai_requests_total{{path="{route}",status="{status}"}} {count:.0f}'
        yield from _histogram(
            "bonsai_request_seconds",
            "Time of a request.",
            SECONDS,
            total[_SECONDS:_SECONDS_SUM],
            total[_SECONDS_SUM],
        )
        yield from _histogram(
            "bonsai_batch_texts",
            "Texts that are predicted together.",
            SIZES,
            total[_SIZES:_TEXTS],
            total[_TEXTS],
        )
        for name, kind, text, value in (
            ("bonsai_requests_under_way", "gauge", "Requests under way.", total[_UNDER_WAY]),
            ("bonsai_model_reloads_total", "counter", "Model files that were replaced.", total[_RELOADS]),
            ("bonsai_model_refusals_total", "counter", "Model files refused.", total[_REFUSED_FILES]),
            ("bonsai_start_time_seconds", "gauge", "When the server started.", self._begin),
        ):  # fmt: skip
            yield f"# HELP {name} {text}\n# TYPE {name} {kind}\n{name} {value:.17g}"


def _histogram(name: str, text: str, bounds: tuple[float, ...], counts: Any, total: float) -> Iterator[str]:
    yield f"# HELP {name} {text}\n# TYPE {name} histogram"
    cumulative = np.cumsum(counts)
    for bound, count in zip((*map(str, bounds), "+Inf"), cumulative, strict=True):
        yield f'{name}_bucket{{le="{bound}"}} {count:.0f}'
    yield f"{name}_sum {total:.9g}\n{name}_count {cumulative[-1]:.0f}"
