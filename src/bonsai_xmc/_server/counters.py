"""Counters in memory that all workers share, in Prometheus's text format."""

import mmap
import time
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import numpy as np

from bonsai_xmc._server.routes import COUNTERS

STATUSES = (
    200,
    204,
    400,
    401,
    403,
    404,
    405,
    408,
    413,
    415,
    429,
    500,
    503,
    499,
)  # 499: the client disconnected
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024)

_ROUTE = {route: i for i, route in enumerate(COUNTERS)}
_STATUS = {status: i for i, status in enumerate(STATUSES)}
_TABLE = np.dtype(
    [
        ("requests", np.float64, (len(COUNTERS), len(STATUSES))),
        ("seconds", np.float64, len(SECONDS) + 1),
        ("seconds_sum", np.float64),
        ("sizes", np.float64, len(SIZES) + 1),
        *((name, np.float64) for name in ("texts", "under_way", "reloads", "refused")),
    ]
)


class Counters:
    """A row of counters for each slot. A worker writes to its own slot; sums over all slots are shown."""

    def __init__(self, n_slots: int = 1) -> None:
        memory = mmap.mmap(-1, n_slots * _TABLE.itemsize)  # shared with forked processes
        self._table = np.frombuffer(memory, _TABLE)
        self._row = self._table[0]
        self._begin = time.time()

    def use(self, slot: int) -> None:
        """Count in this slot; requests in progress of a former worker are dropped."""
        self._row = self._table[slot]
        self._row["under_way"] = 0

    def request(self, route: str, status: int, seconds: float) -> None:
        self._row["requests"][_ROUTE[route], _STATUS.get(status, _STATUS[500])] += 1
        self._row["seconds"][bisect_left(SECONDS, seconds)] += 1
        self._row["seconds_sum"] += seconds

    def under_way(self, change: int) -> None:
        self._row["under_way"] += change

    def batch(self, n_texts: int) -> None:
        self._row["sizes"][bisect_left(SIZES, n_texts)] += 1
        self._row["texts"] += n_texts

    def reloaded(self, accepted: bool) -> None:
        self._row["reloads" if accepted else "refused"] += 1

    def text(self) -> str:
        """Return all counters in Prometheus's text format."""
        return "\n".join(
            [*self._lines({name: self._table[name].sum(axis=0) for name in _TABLE.names or ()}), ""]
        )

    def _lines(self, total: dict[str, Any]) -> Iterator[str]:
        yield "# HELP bonsai_requests_total Requests answered.\n# TYPE bonsai_requests_total counter"
        for route, i in _ROUTE.items():
            for status, j in _STATUS.items():
                if count := total["requests"][i, j]:
                    yield f'bonsai_requests_total{{path="{route}",status="{status}"}} {count:.0f}'
        for name, text, bounds, counts, sum_of in (
            ("bonsai_request_seconds", "Time of a request.", SECONDS, "seconds", "seconds_sum"),
            ("bonsai_batch_texts", "Texts that are predicted together.", SIZES, "sizes", "texts"),
        ):
            yield from _histogram(name, text, bounds, total[counts], total[sum_of])
        for name, kind, text, value in (
            ("bonsai_requests_under_way", "gauge", "Requests under way.", total["under_way"]),
            ("bonsai_model_reloads_total", "counter", "Model files that were replaced.", total["reloads"]),
            ("bonsai_model_refusals_total", "counter", "Model files refused.", total["refused"]),
            ("bonsai_start_time_seconds", "gauge", "When the server started.", self._begin),
        ):
            yield f"# HELP {name} {text}\n# TYPE {name} {kind}\n{name} {value:.17g}"


def _histogram(name: str, text: str, bounds: tuple[float, ...], counts: Any, total: float) -> Iterator[str]:
    yield f"# HELP {name} {text}\n# TYPE {name} histogram"
    cumulative = np.cumsum(counts)
    for bound, count in zip((*map(str, bounds), "+Inf"), cumulative, strict=True):
        yield f'{name}_bucket{{le="{bound}"}} {count:.0f}'
    yield f"{name}_sum {total:.9g}\n{name}_count {cumulative[-1]:.0f}"
