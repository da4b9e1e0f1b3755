"""Read and write data sets, and generate data.

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
from ._reading import load_sparse, load_xc
from ._texts import make_texts
from ._types import Dataset, TextDataset
from ._writing import save_sparse, save_xc

__all__ = [
    "SHAPES",
    "Dataset",
    "Document",
    "Documents",
    "TextDataset",
    "load_sparse",
    "load_xc",
    "make_texts",
    "make_xmc",
    "read_documents",
    "read_label_names",
    "read_label_texts",
    "save_mapped",
    "save_sparse",
    "save_xc",
]
