"""Random changes that keep most of the structure: of JSON values, arrays and bytes."""

import copy
import json
from collections.abc import Callable
from typing import Any

import numpy as np

Rng = np.random.Generator
Attempt = Callable[[Rng], bool]  # of a target: make an input, use it, and say whether it was accepted

WORDS = [None, True, False, "", "x", "auto", "input", "3", "\0", "ä", "\ud800", "a" * 300, "a\nb", "\ufeff"]
COUNTS = [-1, 0, 1, 2, 3, 65, 127, 128, 255, 2**15, 2**31 - 1, -(2**31), 2**31, 2**53, 2**62, -(2**63), 2**64]
REALS = [0.5, -0.5, 3.0, 1e-300, 1e9, 1e38, -1e38, 1e300, float("nan"), float("inf")]
HOLDERS: list[Any] = [[], [1], {}, {"a": 1}, [[1, 2]], ["a", "b"], [[]], [None]]
VALUES: list[Any] = [*WORDS, *COUNTS, *REALS, *HOLDERS]
DTYPES = ["u1", "i1", "<u2", "<f2", "<u4", "<i4", "<i8", "<u8", "<f4", "<f8"]
PIECES = [
    *(b"", b"\0", b"\n", b"\r\n", b"\t", b'"', b"'", b",", b";", b"|", b"\\", b" ", b"#", b"__label__"),
    *(b"[", b"]", b"{", b"}", b":", b"null", b"NaN", b"Infinity", b"-1", b"1e400", b"4294967296"),
    *(b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xff\xfe", b"\x1f\x8b", b"<", b">"),
    *(b"9" * 5000, b"[" * 100_000, b'{"a":' * 20_000, b'"' * 1001),
]


def one_of(values: Any, rng: Rng) -> Any:
    """Return one of several values, which may be of any type."""
    return values[int(rng.integers(len(values)))]


def changed_value(value: Any, rng: Rng) -> Any:
    """Return a nested value with another value at one place, or without it; the rest is shared."""
    root = holder = {"": value}
    key: Any = ""
    while True:
        old = holder[key]
        parts = list(old) if isinstance(old, dict) else range(len(old)) if isinstance(old, list) else ()
        if not parts or rng.random() < (0.05 if holder is root else 0.3):
            break
        holder[key] = old = old.copy()
        holder, key = old, one_of(parts, rng)
    kind = rng.random()
    if kind < 0.1 and holder is not root:
        del holder[key]
    elif kind < 0.25 and isinstance(old, int | float) and not isinstance(old, bool):
        holder[key] = -old if rng.random() < 0.3 else old + int(rng.integers(-2, 3))
    elif kind < 0.3 and isinstance(old, list | str):
        holder[key] = old + old
    elif kind < 0.35 and isinstance(old, list | str):
        holder[key] = old[: int(rng.integers(len(old) + 1))]
    elif kind < 0.4 and isinstance(old, dict):
        holder[key] = old | {one_of(["x", "", "text", *old], rng): one_of(VALUES, rng)}
    else:
        holder[key] = copy.deepcopy(one_of(VALUES, rng))
    return root[""]


def changed_json(text: str, rng: Rng) -> str:
    """Return JSON with another value at one place."""
    return json.dumps(changed_value(json.loads(text), rng))


def changed_array(array: np.ndarray, rng: Rng) -> np.ndarray:
    """Return an array with other entries, or of another shape, type or length."""
    array = np.array(array)
    flat = array.reshape(-1)
    kind = one_of(["entry", "entries", "all", "shape", "dtype", "length"], rng)
    with np.errstate(all="ignore"):
        if kind in ("entry", "entries", "all") and len(flat):
            n = {"entry": 1, "entries": min(3, len(flat)), "all": len(flat)}[kind]
            at = rng.choice(len(flat), n, replace=False)
            if array.dtype == object:
                flat[at] = [one_of(VALUES, rng)] * n
            elif array.dtype.kind == "f" and rng.random() < 0.4:
                flat[at] = rng.choice([np.nan, np.inf, -np.inf, 3.4e38])
            elif array.dtype.kind in "fiu" and rng.random() < 0.5:
                flat[at] = (flat[at].astype(np.float64) + rng.integers(-3, 4)).astype(array.dtype)
            else:
                flat[at] = np.array(one_of(COUNTS + REALS[:8], rng)).astype(np.float64).astype(array.dtype)
        elif kind == "shape":
            shapes = [(1, -1), (-1, 1), (1, 1, -1), () if len(flat) == 1 else (-1, 1)]
            return flat.reshape(one_of(shapes, rng))
        elif kind == "dtype" and array.dtype != object:
            return array.astype(one_of(DTYPES, rng))
        elif kind == "length":
            n = int(rng.integers(0, len(flat) + 1))
            return flat[:n] if rng.random() < 0.5 else np.concatenate([flat, flat[: max(1, n)]])
    return array


def changed_bytes(data: bytes, rng: Rng) -> bytes:
    """Return bytes of which some are changed, put in, cut out or copied to another place."""
    result = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(len(result) + 1))
        kind = rng.random()
        if kind < 0.4 and at < len(result):
            result[at] = rng.integers(256)
        elif kind < 0.65:
            result[at:at] = one_of(PIECES, rng)
        elif kind < 0.8:
            del result[at : at + int(rng.integers(1, 9))]
        elif kind < 0.95:
            begin = int(rng.integers(len(result) + 1))
            result[at:at] = bytes(result[begin : begin + int(rng.integers(1, 40))]) * int(rng.integers(1, 4))
        else:
            del result[at:]
    return bytes(result)
