"""Run experiments and write their results: numbers, figures, pages and the report."""

import csv
import io
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from bonsai_xmc import __version__
from bonsai_xmc._base.files import PathLike
from bonsai_xmc._base.progress import ProgressBar
from bonsai_xmc._base.threads import threads_of

from . import accuracy, cost, depth, labels, plots, recorded
from . import source as sources
from .bench import Bench, Factory, Systems, paper_systems
from .report import write as write_report
from .results import Experiment, Result, plural
from .store import Store, write_json, write_text

_ALL = labels.EXPERIMENTS | accuracy.EXPERIMENTS | cost.EXPERIMENTS | depth.EXPERIMENTS

#: The experiments by name, in the order of the paper.
EXPERIMENTS: dict[str, Experiment] = {
    name: _ALL[name]
    for name in (
        "datasets", "powerlaw", "partition", "precision", "tail", "balance", "coverage", "depth",
        "output-space", "propagation", "time",
    )
}  # fmt: skip


def run(
    names: str | Iterable[str],
    data: str | Iterable[str],
    output: PathLike,
    *,
    seeds: int | None = None,
    quick: bool = False,
    n_jobs: int | None = None,
    systems: Systems | None = None,
    only: Iterable[str] | None = None,
    report: Callable[[str], None] = lambda line: None,
    bar: ProgressBar | None = None,
    record: recorded.Record | None = None,
) -> Path:
    """Run experiments of the paper and write numbers, figures and a report.

    Every finished unit of work is stored in `output` and reused by later runs with equal data, parameters and
    seeds, so an interrupted run resumes. The report covers all results in the folder.

    Parameters
    ----------
    names : str or several
        Names in ``EXPERIMENTS``, or "all".
    data : str or several
        A name that `known.load` knows, a folder, two files as ``"TRAIN,TEST"``, or
        ``"generated:SHAPE*FRACTION"``. ``"NAME=…"`` gives files or a folder a name.
    output : path
        Folder to write to; created if missing.
    seeds : int, optional
        Number of seeds; default 5, quick 2. Significance tests need at least 5.
    quick : bool
        Two seeds instead of five, and therefore no significance tests.
    n_jobs : int, optional
        Threads; default: all.
    systems : mapping from name to callable(seed), optional
        Further systems to compare in precision, tail, coverage and time: anything with ``fit(X, Y)`` and
        ``top_k(X, k)``. A known name replaces that system. Results are stored under class and parameters
        (``get_params``), or under class and name if there are none.
    only : several names, optional
        Compare only these of our systems.
    report : callable
        Called with a line of text for each finished unit of work.
    bar : ProgressBar, optional
        Shows the progress of training.
    record : callable, optional
        Called with the name of a table, rows and the columns that identify a row: for each finished cell of a
        comparison of systems, and for the tables of the other experiments.

    Returns
    -------
    Path
        The report: ``output/report.html``.

    Examples
    --------
    >>> import tempfile
    >>> import reproduce
    >>> path = reproduce.run("powerlaw", "generated:small*0.5", tempfile.mkdtemp(), seeds=1)
    >>> path.name, (path.parent / "powerlaw").is_dir()
    ('report.html', True)
    """
    names, data = _listed(names), _listed(map(sources.canonical, _listed(data)))
    chosen = _chosen(names)
    seeds = (2 if quick else 5) if seeds is None else seeds
    if seeds < 1:
        raise ValueError(f"seeds is {seeds}, but must be at least 1")
    threads = threads_of(n_jobs)
    folder = Path(output)
    for text in data:
        sources.check(text)
        if os.path.isdir(text) and folder.is_dir() and folder.samefile(text):
            raise ValueError(f"{output} holds the data; give another folder for the results")
    plots.require()
    store = Store(folder)
    if record is not None:
        recorded.published(record)
    for text in data:
        source = sources.load(text)
        bench = Bench(
            source,
            _compared(paper_systems(source.paper, source.name), only) | dict(systems or {}),
            seeds,
            store,
            threads,
            report,
            bar,
        )
        if record is not None:
            bench.finished = partial(recorded.cell, record, bench)
        for name in chosen:
            bench.experiment = name
            result = EXPERIMENTS[name].run(bench)
            _write(folder / name, name, bench, result)
            if record is not None:
                recorded.tables(record, bench, result)
            # After each experiment, so that an interrupted run leaves a report of what is finished.
            write_report(folder, EXPERIMENTS)
            report(f"{text}  {name}  done")
    report(f"{store.computed} units of work computed, {store.reused} reused")
    return folder / "report.html"


def _compared(systems: Systems, only: Iterable[str] | None) -> dict[str, Factory]:
    wanted = list(systems) if only is None else list(only)
    for name in wanted:
        if name not in systems:
            raise ValueError(f"system {name!r} is unknown, there are {', '.join(systems)}")
    return {name: systems[name] for name in wanted}


def _listed(value: str | Iterable[str]) -> list[str]:
    listed = [value] if isinstance(value, str) else list(value)
    if not listed:
        raise ValueError("give at least one experiment and one data set")
    return list(dict.fromkeys(listed))


def _chosen(names: Sequence[str]) -> list[str]:
    for name in names:
        if name not in EXPERIMENTS and name != "all":
            raise ValueError(f"experiment {name!r} is unknown, there are {', '.join(EXPERIMENTS)} and all")
    return [name for name in EXPERIMENTS if name in names or "all" in names]


def _write(folder: Path, name: str, bench: Bench, result: Result) -> None:
    """Write numbers, figure and pages of a result, and last the JSON file, which the report is made from."""
    folder.mkdir(exist_ok=True)
    stem = folder / bench.source.slug
    write_text(f"{stem}.csv", _csv(result.numbers))
    if result.draw is not None:
        plots.save(result.draw, os.fspath(stem), _heading(bench, result))
    for ending, text in result.pages.items():
        write_text(f"{stem}.{ending}", text)
    content: dict[str, Any] = {
        "experiment": name,
        "data": bench.source.name,
        "generated": bench.source.generated,
        "seeds": bench.seeds,
        "threads": bench.threads,
        "version": __version__,
        "caption": result.caption,
        "findings": result.findings,
        "remarks": result.remarks,
        "comparisons": result.comparisons,
        "tables": [asdict(table) for table in result.tables],
        "slug": bench.source.slug,
        "figure": result.draw is not None,
        "alt": result.alt,
        "pages": list(result.pages),
        "numbers": result.numbers,
    }
    write_json(f"{stem}.json", content)


def _heading(bench: Bench, result: Result) -> str:
    """Return the heading of a figure: the data set and the seeds."""
    seeds = plural(bench.seeds, "seed") if result.seeds is None else result.seeds
    return " · ".join([bench.source.heading, *([seeds] if seeds else [])])


def _csv(lines: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    columns = list(dict.fromkeys(key for line in lines for key in line))
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
