"""The paper's tables as rows for the result files that documents are written from."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from .bench import CUTOFFS, Bench
from .published import COVERAGE, NAMES, PRECISION, TAIL
from .results import PUBLISHED, Result, title_of
from .statistics import mean_and_sd
from .store import package_digest

#: Tables of comparisons of systems other than "paper", which has the systems of the paper.
COMPARED = {"balance": "paper-balance", "output-space": "paper-output-space"}
#: Tables of other experiments, by their place in the result; they are recorded as text.
TEXT = {
    "depth": {"paper-depth": 0, "paper-early-leaves": -1},
    "propagation": {"paper-propagation": 0},
}
_METRICS = [f"{name}@{k}" for name in ("P", "PSP", "C", "CC") for k in CUTOFFS]


class Record(Protocol):
    """Stores rows of a table in place of those that are equal in the columns `beside`."""

    def __call__(self, name: str, rows: list[dict[str, Any]], beside: tuple[str, ...], /) -> None: ...


def cell(record: Record, bench: Bench, name: str, runs: Sequence[Mapping[str, Any]]) -> None:
    """Record a system on a data set: metrics and CPU time as [mean, standard deviation] over its seeds."""
    row = {
        "data": bench.source.name,
        "system": title_of(name),
        **{key: _spread([run["metrics"][key] for run in runs]) for key in _METRICS},
        "training CPU s": _spread([run["fit_cpu_s"] for run in runs]),
        "threads": max(run["threads"] for run in runs),
        "seeds": len(runs),
        "date": f"{datetime.fromtimestamp(max(run['made'] for run in runs), UTC):%Y-%m-%d}",
        "package": package_digest(),
    }
    record(COMPARED.get(bench.experiment, "paper"), [row], ("data", "system"))


def tables(record: Record, bench: Bench, result: Result) -> None:
    """Record the tables of an experiment that does not compare systems."""
    for name, place in TEXT.get(bench.experiment, {}).items() if result.tables else ():
        table = result.tables[place]
        columns = [column or "system" for column in table.columns]
        rows = [{"data": bench.source.name} | dict(zip(columns, row, strict=True)) for row in table.rows]
        record(name, rows, ("data",))


def published(record: Record) -> None:
    """Record the paper's own figures as further data sets of the table of systems."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for metric, by_data in (("P", PRECISION), ("PSP", TAIL), ("C", COVERAGE)):
        for data, systems in by_data.items():
            for name, values in systems.items():
                numbers = values[0] if isinstance(values[0], tuple) else values
                row = found.setdefault((f"{NAMES[data]} {PUBLISHED}", title_of(name)), {})
                row |= {f"{metric}@{k}": value for k, value in zip(CUTOFFS, numbers, strict=True)}
    rows = [{"data": data, "system": system} | row for (data, system), row in found.items()]
    record("paper", rows, ("data", "system"))


def _spread(values: Sequence[float]) -> Any:
    mean, sd = mean_and_sd(values)
    return mean if len(values) == 1 else [mean, sd]
