"""Throughput of the text readers, compared with scikit-learn's svmlight reader: `python -m benchmarks.parse`.

The texts are in memory, so that the disk is not measured: `delicious/train.txt`, repeated up to the given
size, and generated rows of the shape of Amazon-670K. One thread, best of a few runs. scikit-learn reads the
same rows without the header line.
"""

import argparse
import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from reproduce import known
from sklearn.datasets import load_svmlight_file

from bonsai_xmc import _core, datasets

AS_THE_TEXT_SAYS = -1


def tiled(text: bytes, size: int) -> bytes:
    """The rows of an XC text, repeated to at least `size` bytes, with a matching header."""
    header, _, rows = text.partition(b"\n")
    n_rows, n_features, n_labels = header.split()
    times = max(1, -(-size // len(rows)))
    return b"%d %s %s\n" % (int(n_rows) * times, n_features, n_labels) + rows * times


def generated(size: int) -> bytes:
    data = datasets.make_xmc("amazon-670k", scale=0.01)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "train.txt")
        datasets.save_xc(path, data.X_train, data.Y_train)
        return tiled(path.read_bytes(), size)


def rate(read: Callable[[], object], size: int, repeats: int) -> float:
    """MB/s, best of `repeats` runs."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        read()
        seconds.append(time.perf_counter() - start)
    return size / 1e6 / min(seconds)


def rates(text: bytes, repeats: int) -> tuple[float, float, float]:
    """MB/s of our XC reader, our svmlight reader and scikit-learn's."""
    rows = text.partition(b"\n")[2]
    whole, headless = (np.frombuffer(part, np.uint8) for part in (text, rows))
    options = (0, 0, AS_THE_TEXT_SAYS, AS_THE_TEXT_SAYS)
    return (
        rate(lambda: _core.parse_xc(whole, *options), len(text), repeats),
        rate(lambda: _core.parse_svmlight(headless, *options), len(rows), repeats),
        rate(lambda: load_svmlight_file(io.BytesIO(rows), multilabel=True, zero_based=True), len(rows), 1),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="MB/s of the text readers and of scikit-learn's.")
    parser.add_argument("--size", type=float, default=50, help="MB of text (default 50)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of our readers (default 3)")
    arguments = parser.parse_args()
    size = int(arguments.size * 1e6)

    texts = {"amazon-670k shape, generated": generated(size)}
    try:
        delicious = known.find("delicious") / "train.txt"
        texts["delicious/train.txt, repeated"] = tiled(delicious.read_bytes(), size)
    except FileNotFoundError as error:
        print(f"(without delicious: {error})")
    print(f"{'MB/s':32} {'MB':>6} {'XC':>10} {'svmlight':>10} {'scikit-learn':>13}")
    for name, text in texts.items():
        xc, svmlight, theirs = rates(text, arguments.repeats)
        print(f"{name:32} {len(text) / 1e6:6.1f} {xc:10.0f} {svmlight:10.0f} {theirs:13.1f}")


if __name__ == "__main__":
    main()
