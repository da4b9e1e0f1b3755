"""Data sets: reading and writing files, generating data, and loading known sets by name.

Examples
--------
>>> from bonsai_xmc import datasets
>>> data = datasets.make_xmc(n_rows=200, n_test=50, random_state=0)
>>> data.X_train.shape[0], data.X_test.shape[0]
(200, 50)
"""

from ._documents import Document, Documents, read_documents, read_label_names, read_label_texts
from ._mapped import save_mapped
from ._matrices import SHAPES, make_xmc
from ._named import find, load, prepare
from ._reading import load_sparse, load_xc
from ._repository import PAPER, statistics
from ._texts import make_texts
from ._types import Dataset, TextDataset
from ._writing import save_sparse, save_xc

__all__ = [
    "PAPER",
    "SHAPES",
    "Dataset",
    "Document",
    "Documents",
    "TextDataset",
    "find",
    "load",
    "load_sparse",
    "load_xc",
    "make_texts",
    "make_xmc",
    "prepare",
    "read_documents",
    "read_label_names",
    "read_label_texts",
    "save_mapped",
    "save_sparse",
    "save_xc",
    "statistics",
]
