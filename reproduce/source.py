"""The data of an experiment: a known data set, files of the user, or generated data of a known shape."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bonsai_xmc import datasets, metrics
from bonsai_xmc.datasets import Dataset
from bonsai_xmc.datasets._folders import find_part
from bonsai_xmc.datasets._reading import Expected, Options, read_rows, source

from . import known, published
from .repository import PAPER
from .store import data_digest

_GENERATED = "generated:"
#: The paper's data set of the same origin, though with other rows and features.
_RELATED = {"eurlex57k": "eurlex-4k"}


class Source(NamedTuple):
    """A data set, ready to run on.

    Attributes
    ----------
    name : str
        As the user wrote it, in canonical form.
    slug : str
        The same as part of a file name.
    data : Dataset
    digest : str
        Of the matrices.
    paper : str or None
        The paper's data set that this is, or whose shape it has.
    generated : bool
        Whether the data are generated in the shape of a data set.
    propensity : (A, B)
    """

    name: str
    slug: str
    data: Dataset
    digest: str
    paper: str | None
    generated: bool
    propensity: tuple[float, float]

    @property
    def heading(self) -> str:
        """The data set as a figure names it."""
        X, Y = self.data.X_train, self.data.Y_train
        generated = " (generated)" if self.generated else ""
        name = self.name.removeprefix(_GENERATED)
        return f"{name}{generated} · {X.shape[0]:,} training rows, {Y.shape[1]:,} labels"

    @property
    def reference(self) -> str | None:
        """The paper's data set whose numbers are shown next to ours: the same, or one of the same origin."""
        return self.paper or _RELATED.get(self.name)

    @property
    def note(self) -> str:
        """The data in a caption."""
        X, Y, X_test = self.data.X_train, self.data.Y_train, self.data.X_test
        size = (
            f"{self.name}: {X.shape[0]:,} training and {X_test.shape[0]:,} test rows, "
            f"{X.shape[1]:,} features, {Y.shape[1]:,} labels"
        )
        if self.generated:
            shape = self.name.removeprefix(_GENERATED).partition("*")[0]
            return f"{size}. Generated data of the shape of {shape}, not the data set itself."
        return size + "."


def known_names() -> Sequence[str]:
    """Return the names that `load` accepts."""
    return (*known.SOURCES, *PAPER)


def canonical(text: str) -> str:
    """Return the canonical form of a name: in lower case, and without ``./`` and ``/`` around folders."""
    if text.lower() in known_names() or text.lower().startswith(_GENERATED):
        return text.lower()
    name, named, text = _name_of(text)
    return (f"{name}=" if named else "") + ",".join(os.path.normpath(path) for path in text.split(","))


def _name_of(text: str) -> tuple[str, bool, str]:
    """Return the name of the data, whether it was given, and what it stands for."""
    name, given, rest = text.partition("=")
    return (name, True, rest) if given and re.fullmatch(r"[\w.-]+", name) else (text, False, text)


def check(text: str) -> None:
    """Raise a ValueError that lists the choices if `text` names no data; reads nothing."""
    _, _, text = _name_of(text)
    if text.startswith(_GENERATED):
        _generated_shape(text)
    elif text in known_names():
        known.find(text)
    elif not all(os.path.exists(path) for path in text.split(",")):
        raise ValueError(
            f"data {text!r} is unknown: give one of {', '.join(known_names())}, a folder with its training "
            f"and test files, two files as TRAIN,TEST, or {_GENERATED}SHAPE*FRACTION, where SHAPE is one of "
            f"{', '.join(datasets.SHAPES)}"
        )
    elif os.path.isfile(text):
        raise ValueError(f"{text} is one file; experiments need two, for training and test: TRAIN,TEST")


def load(text: str) -> Source:
    """Return the data that `text` names; `check` has the accepted forms."""
    text = canonical(text)
    check(text)
    name, _, text = _name_of(text)
    paper, generated, origin = None, False, text
    if text.startswith(_GENERATED):
        shape, fraction = _generated_shape(text)
        data, generated, origin = datasets.make_xmc(shape, scale=fraction), True, shape
    elif text in known_names():
        data = known.load(text)
    else:
        data = _from_files(text)
    if origin in published.NAMES:
        paper = origin
    slug = re.sub(r"[^\w.-]+", "-", name).strip("-.")
    propensity = metrics.PROPENSITY.get(origin, (0.55, 1.5))
    return Source(name, slug, data, data_digest(data), paper, generated, propensity)


def _generated_shape(text: str) -> tuple[str, float]:
    shape, star, fraction = text.removeprefix(_GENERATED).partition("*")
    if shape not in datasets.SHAPES:
        raise ValueError(f"data {text!r}: shape {shape!r} is none of {', '.join(datasets.SHAPES)}")
    try:
        scale = float(fraction) if star else 1.0
    except ValueError:
        scale = 0.0
    if not 0 < scale <= 1:
        raise ValueError(f"data {text!r}: the fraction after * must be a number above 0 and up to 1")
    return shape, scale


def _from_files(text: str) -> Dataset:
    if os.path.isdir(text):
        files = [find_part(Path(text), part) for part in ("trn", "tst")]
    else:
        files = [(Path(path), None) for path in text.split(",", 1)]
    return _read_parts(*files)


def _read_parts(train: tuple[Path, Path | None], test: tuple[Path, Path | None]) -> Dataset:
    """Read training and test files, each with features and perhaps a file of its own for labels.

    Ids of svmlight files are read as if they began at 0: in both, so that features remain the same.
    """
    known = Expected(id_base=0)
    parts = []
    for features, labels in (train, test):
        files = source(features), None if labels is None else source(labels)
        parts.append(read_rows(*files, Options(), known))
        known = Expected(parts[0].X.shape[1], parts[0].Y.shape[1], 0, str(train[0]))
    return Dataset(parts[0].X, parts[0].Y, parts[1].X, parts[1].Y, None, None)
