"""Random choices that depend on a seed alone, on any system and with any version of NumPy."""

import secrets
from typing import Any

import numpy as np

from bonsai_xmc._base.arrays import Array


def shuffled(n: int, seed: int) -> Array:
    """Return the numbers below n in random order."""
    return np.argsort(_mixed(np.arange(n, dtype=np.uint64), seed), kind="stable")


def uniform(seed: int) -> float:
    """Return a number in [0, 1)."""
    return float(_mixed(np.array([2**63], np.uint64), seed)[0] >> np.uint64(11)) / 2**53


def normals(n: int, seed: int) -> Array:
    """Return n numbers of the standard normal distribution."""
    half = (n + 1) // 2
    uniforms = (
        (_mixed(np.arange(2 * half, dtype=np.uint64), seed) >> np.uint64(11)) + np.uint64(1)
    ) / 2.0**53
    radius, angle = np.sqrt(-2 * np.log(uniforms[:half])), 2 * np.pi * uniforms[half:]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:n]


def _mixed(numbers: Array, seed: int) -> Array:
    """Compute SplitMix64 of (seed, number)."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) * np.uint64(0xD1342543DE82EF95) + numbers * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def seed_of(random_state: Any) -> int:
    """Return one integer that all randomness follows from."""
    if random_state is None:
        return secrets.randbits(32)
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**32))
    from sklearn.utils import check_random_state  # takes a second to import

    return int(check_random_state(random_state).randint(2**31))
