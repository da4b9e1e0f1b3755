"""What several test modules share."""

# Six labels whose names are hard to write and to read.
NAMES = ["Ahorn", "Bäume 🌳", "", "línea\nnueva", "木", "a" * 300]


def same_model(a, b):
    """Whether two models have equal trees and weights, bit by bit."""
    assert a._arrays.keys() == b._arrays.keys()
    return all(
        x.dtype == y.dtype and x.tobytes() == y.tobytes()
        for x, y in zip(a._arrays.values(), b._arrays.values(), strict=True)
    )
