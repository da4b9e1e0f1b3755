"""Units that wait to be solved, handed out in batches."""

from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from bonsai_xmc._base.arrays import Array

_SHORTEST = 1 / 40  # of the time that a batch should take


class Batches:
    """The units of a stage that nobody works on yet, the most costly first.

    Parameters
    ----------
    units : array of uint32
    costs : array
        Of all units of the stage, in any measure.
    seconds : float
        How long a batch should take.
    """

    def __init__(self, units: Array, costs: Array, seconds: float) -> None:
        # A unit without cost counts, too: it has to be sent.
        self._costs = np.maximum(costs.astype(np.float64), 1.0)
        self._seconds = seconds
        order = np.argsort(-self._costs[units], kind="stable")
        self._waiting = deque(units[order].tolist())
        self.waiting_cost = self.cost(units)

    def __len__(self) -> int:
        return len(self._waiting)

    def cost(self, units: Any) -> float:
        """Return the cost of some units."""
        return float(self._costs[np.asarray(units, np.int64)].sum())

    def take(self, rate: float | None, n_takers: int) -> Array:
        """Return a batch for one of `n_takers`, which solves units of this cost in a second.

        A single unit where the rate is not known. Batches become smaller towards the end, so that all takers
        end at about the same time, but not so small that sending them takes longer.
        """
        wanted = 0.0
        if rate is not None:
            longest, shortest = self._seconds * rate, self._seconds * rate * _SHORTEST
            wanted = min(longest, max(shortest, self.waiting_cost / (2 * max(1, n_takers))))
        taken: list[int] = []
        cost = 0.0
        while self._waiting and (not taken or cost + self._costs[self._waiting[0]] <= wanted):
            taken.append(self._waiting.popleft())
            cost += self._costs[taken[-1]]
        self.waiting_cost -= cost
        return np.array(taken, np.uint32)

    def give_back(self, units: Iterable[int]) -> None:
        """Put units that were taken and not solved in front of all others."""
        units = list(units)
        self._waiting.extendleft(reversed(units))
        self.waiting_cost += self.cost(units)
