"""What several test modules share."""

# Six labels whose names are hard to write and to read.
NAMES = ["Ahorn", "Bäume 🌳", "", "línea\nnueva", "木", "a" * 300]


def same_model(a, b):
    """Whether two models have equal trees and weights, bit by bit."""
    assert a._arrays.keys() == b._arrays.keys()
    return _same_arrays(a._arrays, b._arrays) and _same_arrays(a._ranker_arrays, b._ranker_arrays)


def _same_arrays(a, b):
    if a is None or b is None:
        return a is b
    return all(
        x.dtype == y.dtype and x.tobytes() == y.tobytes() for x, y in zip(a.values(), b.values(), strict=True)
    )
