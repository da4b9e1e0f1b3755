"""Differences between systems and their significance: each difference has one p-value, computed here."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .results import Table, plural, signed, title_of
from .statistics import MIN_DIFFERENCES, holm, paired_t_test

#: The words for p-values wherever they are printed.
METHOD = "Holm"


class Comparison(NamedTuple):
    """One difference, a − b in one metric; `p` is corrected for multiple comparisons, NaN if not tested."""

    a: str
    b: str
    metric: str
    difference: float
    p: float

    @property
    def text(self) -> str:
        """The difference with its p-value.

        >>> Comparison("x", "y", "P@1", 0.5, 0.04).text, Comparison("x", "y", "P@1", -0.5, math.nan).text
        ('+0.50 (p = 0.040, Holm)', '−0.50')
        """
        if math.isnan(self.p):
            return signed(self.difference)
        shown = "p < 0.001" if self.p < 0.001 else f"p = {self.p:.3f}"
        return f"{signed(self.difference)} ({shown}, {METHOD})"


class Comparisons:
    """All comparisons of one experiment: tested over seeds and corrected together, once.

    Parameters
    ----------
    values : callable(name, metric)
        The metric of a system for each seed; a system that does not depend on the seed has one value.
    pairs : sequence of (a, b)
        Names of the systems to compare.
    metrics : sequence of str
    tested_elsewhere : str
        The experiment that tests the same differences. They are then given here without p-values.
    """

    def __init__(
        self,
        values: Callable[[str, str], Sequence[float]],
        pairs: Sequence[tuple[str, str]],
        metrics: Sequence[str],
        tested_elsewhere: str = "",
    ) -> None:
        cases = [(a, b, metric) for a, b in pairs for metric in metrics]
        tests = [paired_t_test(values(a, m), values(b, m)) for a, b, m in cases]
        adjusted = holm([math.nan if tested_elsewhere else p for _, p in tests])
        self.pairs, self.metrics = list(pairs), list(metrics)
        self._elsewhere = tested_elsewhere
        self._seeds = max((max(len(values(a, m)), len(values(b, m))) for a, b, m in cases), default=0)
        self._all = {
            case: Comparison(*case, difference, p)
            for case, (difference, _), p in zip(cases, tests, adjusted, strict=True)
        }

    def __getitem__(self, case: tuple[str, str, str]) -> Comparison:
        return self._all[case]

    def sentence(self, a: str, b: str, metrics: Sequence[str] | None = None) -> str:
        """Return how far system a is from system b, for a list of findings."""
        chosen = [self[a, b, metric] for metric in metrics or self.metrics]
        differences = ", ".join(f"{one.metric} {one.text}" for one in chosen)
        where = f" (tested in {self._elsewhere})" if self._elsewhere else ""
        return f"{title_of(a)} − {title_of(b)}: {differences}{where}."

    def table(self, title: str = "Pairwise differences") -> Table:
        """Return a table of pairs × metrics."""
        rows = [
            [f"{title_of(a)} − {title_of(b)}", *(self[a, b, m].text for m in self.metrics)]
            for a, b in self.pairs
        ]
        return Table(title, ["", *self.metrics], rows, self.note)

    @property
    def note(self) -> str:
        """How the p-values were made, or why there are none."""
        tested = sum(not math.isnan(one.p) for one in self._all.values())
        if self._elsewhere:
            return f"Tested in {self._elsewhere}."
        if not tested and self._seeds < MIN_DIFFERENCES:
            return (
                f"No significance tests: {plural(self._seeds, 'seed')}, and tests need at least "
                f"{MIN_DIFFERENCES}."
            )
        if not tested:
            return "No significance tests: the differences do not vary with the seed."
        return (
            "p: two-sided paired t-test over seeds (one-sample where one side has a single run), adjusted "
            f"by Holm's method for the {plural(tested, 'comparison')} of this experiment. It covers the "
            "randomness of the trees, not the sampling of the data."
        )

    def records(self) -> list[dict[str, Any]]:
        """Return the comparisons for a JSON file, where a missing p is null."""
        return [
            {**one._asdict(), "p": None if math.isnan(one.p) else one.p, "method": METHOD}
            for one in self._all.values()
        ]
