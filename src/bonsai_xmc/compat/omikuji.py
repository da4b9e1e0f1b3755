"""omikuji's Python interface, version 0.5, over `Bonsai`: ``from bonsai_xmc.compat import omikuji``.

Supported are hyper-parameters, training from a file, saving to a folder, and prediction of one row as pairs.
`HyperParam` lists the meaning of each hyper-parameter. Differences:

- Models are folders with files in the format of this package. Models of omikuji are read.
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
_FIELDS: dict[str, tuple[str, Any]] = {  # type in C, default
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
_LARGEST = {"size": 2**64 - 1, "uint32": 2**32 - 1, "int8": 127, "bool": 1}


class LossType(enum.Enum):
    HINGE = 0
    LOG = 1
    Hinge = 0
    Log = 1


class _FeatureIndexError(AssertionError, ValueError):
    pass


class HyperParam:
    """Hyper-parameters of training; attributes accept the values of a C structure.

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

    __slots__ = tuple(_FIELDS)

    def __init__(self, **values: Any) -> None:
        for name in values:
            if name not in _FIELDS:
                raise TypeError(f"HyperParam has no parameter {name!r}")
        for name, (_, default) in _FIELDS.items():
            setattr(self, name, values.get(name, default))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"HyperParam has no field {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _FIELDS:
            raise AttributeError(f"HyperParam has no field {name!r}")
        kind, _ = _FIELDS[name]
        if kind == "float" and not isinstance(value, int | float | np.number):
            raise TypeError(f"{name}: must be real number, not {type(value).__name__}")
        if kind != "float" and not isinstance(value, int | np.integer | np.bool_):
            raise TypeError(f"{name}: an integer is required")
        if kind != "float" and not 0 <= int(value) <= _LARGEST[kind]:
            raise OverflowError(f"{name}: {int(value)} is out of range")
        if kind == "float":
            value = struct.unpack("f", struct.pack("f", value))[0]  # as a float in C
        super().__setattr__(name, bool(value) if kind == "bool" else value if kind == "float" else int(value))

    def __dir__(self) -> list[str]:
        return list(_FIELDS)

    def __repr__(self) -> str:
        """Return the fields in the format of omikuji, with groups for solvers and clustering."""
        groups: dict[str, list[str]] = {"": [], "linear": [], "cluster": []}
        for name in _FIELDS:
            value, group = getattr(self, name), name.partition("_")[0]
            shown = f"{value:g}" if isinstance(value, float) else str(value).lower()
            group = group if group in groups else ""
            groups[group].append(f"{name.removeprefix(f'{group}_')}: {shown}")
        own, linear, cluster = (", ".join(fields) for fields in groups.values())
        return f"HyperParam {{ {own}, linear: {{ {linear} }}, cluster: {{ {cluster} }} }}"

    def _bonsai(self, n_threads: int | None) -> Bonsai:
        """Return the estimator with these parameters; ValueError for values that omikuji rejects."""
        for name in ("n_trees", "max_depth", "linear_eps", "linear_c", "linear_max_iter", "cluster_k"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, but is {getattr(self, name)}")
        if self.tree_structure_only:
            raise ValueError("tree_structure_only is not supported: set it to False")
        if self.linear_loss_type not in (0, 1):
            raise ValueError(f"linear_loss_type must be 0 or 1, but is {self.linear_loss_type}")
        return Bonsai(
            **_trees.parameters(self.cluster_k, self.cluster_balanced, self.max_depth, self.min_branch_size),
            n_trees=self.n_trees,
            loss="squared_hinge" if self.linear_loss_type == 0 else "logistic",
            tol=self.linear_eps,
            C=self.linear_c,
            prune=self.linear_weight_threshold,
            max_iter=min(self.linear_max_iter, 2**31 - 1),
            threshold=0.5,  # not used here, which saves a second training
            n_jobs=None if n_threads is None or n_threads <= 0 else n_threads,
        )


class Model:
    """A trained model, from `train_on_data` or `load`."""

    def __init__(self, parts: list[Bonsai], n_threads: int | None = None) -> None:
        self._parts = parts  # several if models were saved into one folder
        self._n_threads = n_threads

    @classmethod
    def default_hyper_param(cls) -> HyperParam:
        """Return the default hyper-parameters, whose attributes can be set."""
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
        # words that callers search for
        print(f"bonsai-xmc: Training model with hyper-parameters {param!r}", flush=True)
        try:
            model = param._bonsai(n_threads)
            layers = param.collapse_every_n_layers if param.cluster_k > 1 else 0
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # omikuji has none
                model = _trees.fit(model, features, labels, layers)
        except ValueError as error:
            raise RuntimeError(f"Failed to train model: {error}") from error
        return cls([model])

    @classmethod
    def load(cls, path: str) -> "Model":
        """Return a model from a folder of `save`, of this package or of omikuji 0.5."""
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
        """Write the model into a folder; its trees are added to a model of the same kind there."""
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
        """Return the number of features."""
        return self._parts[0].n_features_in_

    @property
    def n_trees(self) -> int:
        return sum(len(part.trees_) for part in self._parts)

    def predict(
        self, feature_value_pairs: Iterable[tuple[int, float]], beam_size: int = 10, top_k: int = 10
    ) -> list[tuple[int, float]]:
        """Return the `top_k` best labels of one row as (label, score), best first."""
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
        """Do nothing, as weights are already packed for prediction."""

    def init_prediction_thread_pool(self, n_threads: int) -> None:
        """Set the prediction threads, without effect on the time, as one row takes one thread."""
        self._n_threads = n_threads if n_threads > 0 else None


default_hyper_param, train_on_data = Model.default_hyper_param, Model.train_on_data


def init_logger() -> None:
    """Raise RuntimeWarning, as omikuji does after its import."""
    raise RuntimeWarning("Failed to initialize logger")


def _part_files(path: str) -> list[str]:
    return sorted(glob.glob(os.path.join(glob.escape(path), _PART.format("*"))), key=lambda p: (len(p), p))


def _settings(model: Bonsai) -> tuple[Any, ...]:
    return model.n_features_in_, model.strategy_.loss
