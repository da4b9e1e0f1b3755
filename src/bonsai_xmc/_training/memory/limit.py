"""Limits of memory: where they come from, and how training stays within them."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bonsai_xmc._base.progress import NO_MEMORY
from bonsai_xmc._model.strategy import Strategy
from bonsai_xmc._training.memory.sizes import Sizes, by_phase

_UNITS = {"": 1, "B": 1} | {
    prefix + unit: base**power
    for power, prefix in enumerate("KMGT", 1)
    for unit, base in (("", 1024), ("B", 1000), ("IB", 1024))
}
# Estimates can be too low by this factor.
_MARGIN = 1.25
# Arrays that do not grow with the data, and what the allocator keeps: estimates leave them out.
_FIXED = 8 << 20
# What RLIMIT_AS counts for each thread in addition to its memory: its stack, and what its heap reserves.
# Where there is no room for that, threads use the heap of others, or there are fewer.
_ADDRESSES_OF_THREAD = 80 << 20
SMALL_BATCH = 512  # held-out rows that are predicted at once where memory is short


@dataclass(frozen=True)
class Plan:
    """How training stays within a limit; the model does not depend on it."""

    threads: Mapping[str, int] = field(default_factory=dict)  # of phases that have less than all
    batch_rows: int | None = None  # held-out rows that are predicted at once; None: no limit


def parse(max_memory: int | float | str | None) -> int | None:
    """Return bytes; None for no limit. "auto" is the limit of the system."""
    if max_memory is None or max_memory == "auto":
        return None
    if isinstance(max_memory, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", max_memory)
        if found is not None and found[2].upper() in _UNITS and float(found[1]) > 0:
            return int(float(found[1]) * _UNITS[found[2].upper()])
    elif not isinstance(max_memory, bool) and max_memory > 0:
        return int(max_memory)
    raise ValueError(
        f"max_memory is {max_memory!r}, but must be 'auto', None, or bytes: a number above 0, or one with a "
        "unit, such as '4GB' or '512MiB'"
    )


@dataclass(frozen=True)
class Room:
    """What this process may still take."""

    size: int  # bytes
    per_thread: int = 0  # bytes that each thread takes of it, where there are as many


def available(max_memory: int | float | str | None) -> Room | None:
    """Return the room that a limit leaves; None where nothing limits the process."""
    limit = parse(max_memory)
    resident, addresses = _sizes_of_process()
    if limit is not None:
        return Room(limit - resident)
    if max_memory is None:
        return None
    rooms = [Room(limit - used) for limit, used in _cgroup_limits(Path("/"))]
    addressable = _address_limit()
    if addressable is not None:
        rooms.append(Room(addressable - addresses, _ADDRESSES_OF_THREAD))
    return min(rooms, key=lambda room: room.size, default=None)


def plan(sizes: Sizes, strategy: Strategy, threads: int, room: Room, **options: Any) -> Plan:
    """Plan for fewer threads and smaller batches, if there is little room; `options` are those of `by_phase`.

    Raises
    ------
    MemoryError
        If training would not fit with one thread.
    """

    def need(n: int, batch_rows: int | None, by: Strategy, of: Sizes, **more: Any) -> dict[str, float]:
        found = by_phase(of, by, n, **options | more, batch_rows=batch_rows)
        return {phase: size - sizes.rows_and_labels for phase, size in found.items()}

    def fits(size: float, n: int) -> bool:
        return _MARGIN * size + _FIXED + n * room.per_thread <= room.size

    usual, least = need(threads, None, strategy, sizes), need(1, SMALL_BATCH, strategy, sizes)
    if fits(max(usual.values()), threads):
        return Plan()
    if max(least.values()) > room.size:
        fitting = [
            name
            for name, by, of in _alternatives(sizes, strategy)
            if max(need(1, SMALL_BATCH, by, of).values()) <= room.size
        ]
        if max(need(1, SMALL_BATCH, strategy, sizes, stored=True).values()) <= room.size:
            fitting.insert(0, "a checkpoint")
        raise MemoryError(refusal(usual, least, room.size, fitting))
    fewer = {}
    for phase in usual:
        n = threads
        while n > 1 and not fits(need(n, SMALL_BATCH, strategy, sizes)[phase], n):
            n -= 1
        if n < threads:
            fewer[phase] = n
    return Plan(fewer, SMALL_BATCH)


def _alternatives(sizes: Sizes, strategy: Strategy) -> Iterator[tuple[str, Strategy, Sizes]]:
    """Yield parameters that need less memory, with the strategy and the sizes that result."""
    if strategy.n_trees > 1:
        one_tree = replace(sizes, tree_bytes=sizes.tree_bytes / strategy.n_trees)
        yield "n_trees=1", replace(strategy, n_trees=1), one_tree
    if strategy.classifiers == "blend":
        by_labels = replace(strategy, classifiers="one_vs_rest", n_trees=0)
        yield 'classifiers="one_vs_rest"', by_labels, replace(sizes, tree_bytes=0.0)
        by_leaves = replace(strategy, classifiers="leaf")
        yield 'classifiers="leaf"', by_leaves, replace(sizes, one_vs_rest_bytes=0.0)
    third = {name: getattr(sizes, name) / 3 for name in ("tree_bytes", "one_vs_rest_bytes", "index_bytes")}
    yield f"a larger prune than {strategy.prune:g}", strategy, replace(sizes, **third)
    if strategy.branching_factor > 16 and strategy.n_trees > 0:
        yield "branching_factor=16", replace(strategy, branching_factor=16), sizes


def refusal(
    usual: Mapping[str, float], least: Mapping[str, float], room: float, fitting: Sequence[str]
) -> str:
    phase = max(least, key=lambda name: least[name])
    text = (
        f"{NO_MEMORY} to train: the phase {phase!r} would take about {_shown(usual[phase])} more, "
        f"{_shown(least[phase])} with one thread, but the limit leaves {_shown(max(0.0, room))}"
    )
    advice = f"would fit: {', or '.join(fitting)}" if fitting else "train on fewer rows or labels"
    return f"{text}. Give a higher max_memory; {advice}"


def _shown(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def _sizes_of_process() -> tuple[int, int]:
    """Return resident memory and addresses of this process."""
    try:
        addresses, resident = Path("/proc/self/statm").read_text().split()[:2]
    except OSError:
        return 0, 0
    page = os.sysconf("SC_PAGE_SIZE")
    return int(resident) * page, int(addresses) * page


def _address_limit() -> int | None:
    try:
        import resource
    except ImportError:  # not a Unix
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def _cgroup_limits(root: Path) -> Iterator[tuple[int, int]]:
    """Yield (limit, used) of the control groups that this process is in, of version 2 or 1."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    mounted = root / "sys/fs/cgroup"
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            base, names = mounted, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            base, names = mounted / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        folder = base / path.lstrip("/")
        # Inside a container the path may be that of the host: its root is then that of the container.
        for group in [folder, *folder.parents] if folder.exists() else [base]:
            try:
                limit, used = ((group / name).read_text().strip() for name in names)
            except OSError:
                limit = used = "max"
            if limit.isdigit() and used.isdigit() and int(limit) < 1 << 60:
                yield int(limit), int(used) - _file_pages(group)
            if group == base:
                break


def _file_pages(group: Path) -> int:
    """Return the bytes of file pages, which a group counts as used, but which are freed on demand."""
    try:
        lines = (group / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    found = {"inactive_file", "total_inactive_file"}
    return max((int(line.split()[1]) for line in lines if line.split()[0] in found), default=0)
