"""Threads and instruction set of this machine, from the core."""

from bonsai_xmc import _core
from bonsai_xmc._base.params import check


def threads_of(n_jobs: int | None) -> int:
    """Return the threads that `n_jobs` stands for."""
    if type(n_jobs) is int and n_jobs == 1:  # single rows: the rules take a microsecond
        return 1
    check("n_jobs", n_jobs)
    if n_jobs is None or n_jobs == -1:
        return _core.available_threads()
    return int(n_jobs) if n_jobs > 0 else max(1, _core.available_threads() + 1 + int(n_jobs))


def instruction_set() -> str:
    """Return the instruction set whose kernels are used."""
    return _core.isa()
