"""omikuji's Python interface, version 0.5, over `Bonsai`: ``from bonsai_xmc.compat import omikuji``.

Programs keep their calls: hyper-parameters, training from a file, saving to a folder, prediction of one row
as pairs. What each hyper-parameter becomes is listed in `HyperParam`. Differences:

- Models are folders with files of our format. Those that omikuji wrote are read, their weights in 8 bits.
- Wrong input that ends the process in omikuji (no rows, a single feature index that is too large, a beam of
  size 0) raises an exception here.
- A row without any feature gets no labels; omikuji ranks the labels by the biases of their classifiers.

Examples
--------
>>> import os, tempfile
>>> from bonsai_xmc.compat import omikuji
>>> folder = tempfile.mkdtemp()
>>> with open(os.path.join(folder, "train.txt"), "w") as file:
...     n = file.write("3 2 2\\n0 0:1\\n1 1:1\\n0,1 0:1 1:1\\n")
>>> param = omikuji.Model.default_hyper_param()
>>> param.cluster_k, param.cluster_balanced, param.max_depth = 100, False, 3
>>> model = omikuji.Model.train_on_data(file.name, param)  # doctest: +ELLIPSIS
bonsai-xmc: ...
>>> model.save(os.path.join(folder, "model"))
>>> model = omikuji.Model.load(os.path.join(folder, "model"))
>>> label, score = model.predict([(1, 1.0)], top_k=1)[0]
>>> label
1
"""

import enum
import glob
import os
import struct
import sys
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bonsai_xmc import Bonsai, FormatError, datasets
from bonsai_xmc.compat import _omikuji_trees as _trees
from bonsai_xmc.compat._omikuji_files import is_omikuji, load_omikuji

__version__ = "0.5.2"  # the version whose interface this is
__all__ = ["LossType", "Model"]

_PART = "trees{}.bonsai"


class LossType(enum.Enum):
    HINGE = 0
    LOG = 1
    Hinge = 0
    Log = 1


class _FeatureIndexError(AssertionError, ValueError):
    pass


class HyperParam:
    """Hyper-parameters of training; attributes take what a C structure would take.

    =========================  =======================================================================
    here                       `Bonsai`, with ``classifiers="leaf"``
    =========================  =======================================================================
    n_trees                    n_trees
    min_branch_size            max_leaf_size + 1
    max_depth                  max_depth
    collapse_every_n_layers    trees are built first, and given to `fit` with these layers taken out
    linear_loss_type           loss: 0 "squared_hinge", 1 "logistic"
    linear_eps, linear_c       tol, C
    linear_weight_threshold    prune
    linear_max_iter            max_iter
    cluster_k                  branching_factor; 1: a single leaf
    cluster_balanced           balance: "equal" or "none"
    centroid_threshold, cluster_eps, cluster_min_size, train_trees_1_by_1
                               no effect
    tree_structure_only        not supported
    =========================  =======================================================================
    """

    _FIELDS: dict[str, tuple[str, Any]] = {  # noqa: RUF012
        "n_trees": ("size", 3),
        "min_branch_size": ("size", 100),
        "max_depth": ("size", 20),
        "centroid_threshold": ("float", 0.0),
        "collapse_every_n_layers": ("size", 0),
        "tree_structure_only": ("bool", False),
        "train_trees_1_by_1": ("bool", False),
        "linear_loss_type": ("int8", 0),
        "linear_eps": ("float", 0.1),
        "linear_c": ("float", 1.0),
        "linear_weight_threshold": ("float", 0.1),
        "linear_max_iter": ("uint32", 20),
        "cluster_k": ("size", 2),
        "cluster_balanced": ("bool", True),
        "cluster_eps": ("float", 1e-4),
        "cluster_min_size": ("size", 2),
    }
    _LARGEST = {"size": 2**64 - 1, "uint32": 2**32 - 1, "int8": 127}  # noqa: RUF012
    __slots__ = ("_values",)

    def __init__(self, **values: Any) -> None:
        object.__setattr__(self, "_values", {})
        for name, (_, default) in self._FIELDS.items():
            setattr(self, name, values.pop(name, default))
        for name in values:
            raise TypeError(f"HyperParam has no parameter {name!r}")

    def __getattr__(self, name: str) -> Any:
        if name not in HyperParam._FIELDS:
            raise AttributeError(f"HyperParam has no field {name!r}")
        return self._values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._FIELDS:
            raise AttributeError(f"HyperParam has no field {name!r}")
        kind = self._FIELDS[name][0]
        if kind == "float":
            if not isinstance(value, int | float | np.number):
                raise TypeError(f"{name}: must be real number, not {type(value).__name__}")
            value = struct.unpack("f", struct.pack("f", value))[0]  # as a float of C holds it
        else:
            if not isinstance(value, int | np.integer | np.bool_):
                raise TypeError(f"{name}: an integer is required")
            value = int(value)
            if not 0 <= value <= self._LARGEST.get(kind, 1):
                raise OverflowError(f"{name}: {value} is out of range")
            value = bool(value) if kind == "bool" else value
        self._values[name] = value

    def __dir__(self) -> list[str]:
        return list(self._FIELDS)

    def __repr__(self) -> str:
        def join(prefix: str) -> str:
            chosen = {n: v for n, v in self._values.items() if n.startswith(prefix)}
            return ", ".join(f"{n.removeprefix(prefix)}: {_shown(v)}" for n, v in chosen.items())

        own = {n: v for n, v in self._values.items() if not n.startswith(("linear_", "cluster_"))}
        first = ", ".join(f"{name}: {_shown(value)}" for name, value in own.items())
        return f"HyperParam {{ {first}, linear: {{ {join('linear_')} }}, cluster: {{ {join('cluster_')} }} }}"

    def _bonsai(self, n_threads: int | None) -> Bonsai:
        """The estimator with these parameters; ValueError if omikuji would refuse them, too."""
        for name in ("n_trees", "max_depth", "linear_eps", "linear_c", "linear_max_iter", "cluster_k"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, but is {getattr(self, name)}")
        if self.tree_structure_only:
            raise ValueError("tree_structure_only is not supported: set it to False")
        if self.linear_loss_type not in (0, 1):
            raise ValueError(f"linear_loss_type must be 0 or 1, but is {self.linear_loss_type}")
        most = 2**31 - 1
        return Bonsai(
            classifiers="leaf",
            n_trees=self.n_trees,
            branching_factor=min(max(2, self.cluster_k), most),
            max_leaf_size=min(max(1, self.min_branch_size - 1), most),
            max_depth=1 if self.cluster_k == 1 else min(self.max_depth, most),
            balance="equal" if self.cluster_balanced else "none",
            loss="squared_hinge" if self.linear_loss_type == 0 else "logistic",
            tol=self.linear_eps,
            C=self.linear_c,
            prune=self.linear_weight_threshold,
            max_iter=min(self.linear_max_iter, most),
            threshold=0.5,  # not used here, so not worth a second training
            n_jobs=_threads(n_threads),
        )


class Model:
    """A trained model: by `train_on_data` or `load`."""

    def __init__(self, parts: list[Bonsai], n_threads: int | None = None) -> None:
        self._parts = parts  # more than one where models were saved into one folder
        self._n_threads = n_threads

    @classmethod
    def default_hyper_param(cls) -> HyperParam:
        """The hyper-parameters that training takes if it is given none; attributes can be set."""
        return HyperParam()

    @classmethod
    def train_on_data(
        cls, data_path: str, hyper_param: HyperParam | None = None, n_threads: int | None = None
    ) -> "Model":
        """Train on a file in the format of the Extreme Classification Repository."""
        try:
            X, Y = datasets.load_xc(data_path)
        except (OSError, ValueError) as error:
            raise RuntimeError(f"Failed to load data from {data_path}: {error}") from error
        return cls.train_on_features_labels(X, Y, hyper_param, n_threads)

    @classmethod
    def train_on_features_labels(
        cls, features: Any, labels: Any, hyper_param: HyperParam | None = None, n_threads: int | None = None
    ) -> "Model":
        """Train on a matrix of features and a 0/1 matrix of labels."""
        param = HyperParam() if hyper_param is None else hyper_param
        _log(f"Training model with hyper-parameters {param!r}")  # words that callers look for
        try:
            model, trees = param._bonsai(n_threads), None
            if param.collapse_every_n_layers > 0 and param.cluster_k > 1:
                trees = _trees.collapsed(model, features, labels, param.collapse_every_n_layers)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # omikuji has none
                model.fit(features, labels, tree=trees)
            model = _trees.search_as_omikuji(model)
        except ValueError as error:
            raise RuntimeError(f"Failed to train model: {error}") from error
        return cls([model])

    @classmethod
    def load(cls, path: str) -> "Model":
        """A model from a folder that `save` wrote, here or in omikuji 0.5."""
        files = _part_files(path)
        try:
            if is_omikuji(path):
                return cls([load_omikuji(path)])
            if not files:
                raise ValueError("it holds no model" if os.path.isdir(path) else "there is no such folder")
            return cls([Bonsai.load(file) for file in files])
        except (OSError, FormatError, ValueError) as error:
            raise RuntimeError(f"Failed to load model from {path}: {error}") from error

    def save(self, path: str) -> None:
        """Write the model into a folder; a model of the same kind that is there gets these trees, too."""
        try:
            os.makedirs(path, exist_ok=True)
            there = _part_files(path)
            foreign = os.path.exists(os.path.join(path, "settings.json"))
            if foreign or (there and _settings(Bonsai.load(there[0])) != _settings(self._parts[0])):
                raise ValueError("a model with different settings is already saved there")
            for number, part in enumerate(self._parts, len(there)):
                part.save(os.path.join(path, _PART.format(number)))
        except (OSError, ValueError) as error:
            raise RuntimeError(f"Failed to save model to {path}: {error}") from error

    @property
    def n_features(self) -> int:
        """Length of a row."""
        return self._parts[0].n_features_in_

    @property
    def n_trees(self) -> int:
        return sum(len(part.trees_) for part in self._parts)

    def predict(
        self, feature_value_pairs: Iterable[tuple[int, float]], beam_size: int = 10, top_k: int = 10
    ) -> list[tuple[int, float]]:
        """The `top_k` best labels of one row as (label, score), best first."""
        pairs = sorted(feature_value_pairs, key=lambda pair: pair[0])
        indices = np.array([index for index, _ in pairs], np.int64)
        values = np.array([value for _, value in pairs], np.float32)
        if len(pairs) and (indices[0] < 0 or indices[-1] >= self.n_features or (np.diff(indices) <= 0).any()):
            raise _FeatureIndexError("Incorrect feature index")
        if top_k < 0 or beam_size < 1:
            raise ValueError(f"top_k is {top_k} and beam_size {beam_size}; they must be at least 0 and 1")
        values[~np.isfinite(values)] = 0
        if top_k == 0 or not values.any():
            return []
        row = csr_array((values, indices, [0, len(pairs)]), shape=(1, self.n_features))
        return _trees.best(self._parts, row, beam_size, top_k, self._n_threads or 1)

    def densify_weights(self, max_sparse_density: float = 0.1, n_threads: int | None = None) -> None:
        """Nothing to do: weights are packed for prediction already."""

    def init_prediction_thread_pool(self, n_threads: int) -> None:
        """Threads of prediction. One row is one thread's work, so that this makes no difference."""
        self._n_threads = n_threads if n_threads > 0 else None


def default_hyper_param() -> HyperParam:
    """As `Model.default_hyper_param`."""
    return HyperParam()


def train_on_data(
    data_path: str, hyper_param: HyperParam | None = None, n_threads: int | None = None
) -> Model:
    """As `Model.train_on_data`."""
    return Model.train_on_data(data_path, hyper_param, n_threads)


def init_logger() -> None:
    """Raises RuntimeWarning, as omikuji does after its import: the log goes to standard output already."""
    raise RuntimeWarning("Failed to initialize logger")


def _log(line: str) -> None:
    print(f"bonsai-xmc: {line}", file=sys.stdout, flush=True)


def _shown(value: Any) -> str:
    return (
        str(value).lower()
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def _threads(n_threads: int | None) -> int | None:
    return None if n_threads is None or n_threads <= 0 else n_threads


def _part_files(path: str) -> list[str]:
    return sorted(glob.glob(os.path.join(glob.escape(path), _PART.format("*"))), key=lambda p: (len(p), p))


def _settings(model: Bonsai) -> tuple[Any, ...]:
    return model.n_features_in_, model.strategy_.loss
