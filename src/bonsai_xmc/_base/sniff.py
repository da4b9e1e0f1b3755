"""The kind of a file, from the beginning of its content and from its name.

=============  =============================================================================================
model          a file of `Bonsai.save`
npz, npy       files of `scipy.sparse.save_npz` and of `numpy.save`
xc             text, its first line a header ``rows features labels``
matrix         text, its first line a header ``rows columns``
svmlight       text without a header, and any other text
empty          nothing

               documents:
jsonl          a JSON object on each line
json           a JSON array of objects
csv, tsv       a table whose first line names the columns
annif          ``text<TAB><uri> <uri>``, with or without the angle brackets
pecos          ``id,id<TAB>text``, ids being integers
libmultilabel  ``id<TAB>label label<TAB>text``, or without ids
fasttext       ``__label__x __label__y text``
parquet        a file of Apache Parquet
xlsx           a workbook of Excel
=============  =============================================================================================
"""

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from bonsai_xmc._base.files import PACKED

#: Bytes that suffice to find the kind of a file.
BEGINNING = 1 << 16

DOCUMENTS = ("jsonl", "json", "csv", "tsv", "annif", "pecos", "libmultilabel", "fasttext", "parquet", "xlsx")

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Kinds by the end of a name, where the content leaves a doubt.
_EXTENSIONS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv", ".tab": "tsv"}
_OTHERS = (".json", ".parquet", ".xlsx", ".txt", ".npz", ".npy", ".svm", ".bonsai")
#: Ends of names of files, which texts of documents do not have.
KNOWN_EXTENSIONS = (*_EXTENSIONS, *_OTHERS, *PACKED)

_WORKBOOK = re.compile(rb"\[Content_Types|_rels/|docProps/|xl/")
_FASTTEXT = re.compile(rb"^\s*__label__", re.MULTILINE)
_URI = rb"(<[^<>\s]+>|\w+://\S+)"
_URIS = re.compile(rb"\s*" + _URI + rb"(\s+" + _URI + rb")*\s*")
_IDS = re.compile(rb"\d+(::[\d.eE+-]+)?(,\d+(::[\d.eE+-]+)?)*")
_FEATURES = re.compile(rb"\s*([\d,]+\s+)?\d+:[-+\d.eE]+(\s+\d+:[-+\d.eE]+)*\s*")
_COLUMN_NAMES = frozenset(
    b"id doc_id title name headline text abstract content body description document label labels subject "
    b"subjects tag tags category categories keywords topic topics class classes lang language".split()
)


class Source(NamedTuple):
    """The content of a file, decompressed, and what messages call it."""

    name: str
    data: bytes

    @property
    def kind(self) -> str:
        return sniff(self.data[:BEGINNING], self.name)

    @property
    def header(self) -> tuple[int, ...] | None:
        """The numbers in the header of a text; None where there is none, or a malformed one."""
        if self.kind not in ("xc", "matrix"):
            return None
        words = _first_line(self.data).split()
        return tuple(map(int, words)) if all(word.isdigit() for word in words) else None


def sniff(beginning: bytes, name: str = "", columns: Sequence[str] = ()) -> str:
    """Return the kind of a file; see the table above. `columns`: those that a table would have."""
    if not beginning:
        return "empty"
    if beginning.startswith((b"PK\x03\x04", b"PK\x05\x06")):  # the latter: an archive without files
        return "xlsx" if _WORKBOOK.match(beginning, 30) else "npz"
    for magic, kind in ((b"\x93NUMPY", "npy"), (b"PAR1", "parquet")):
        if beginning.startswith(magic):
            return kind
    # safetensors: the length of a JSON object, then the object; no such text begins with a brace
    if beginning[8:9] == b"{" and beginning[6:8] == b"\0\0":
        return "model"
    return _document_kind(beginning.removeprefix(_BYTE_ORDER_MARK), name, columns) or _row_kind(beginning)


def extension(name: str) -> str:
    """Return the end of a name in lower case, without that of a compression."""
    stem, end = os.path.splitext(name.lower())
    return os.path.splitext(stem)[1] if end in PACKED else end


def _row_kind(beginning: bytes) -> str:
    words = _first_line(beginning).split()
    if len(words) < 2 or any(b":" in word or b"#" in word for word in words):
        return "svmlight"
    return "matrix" if len(words) == 2 else "xc"


def _document_kind(text: bytes, name: str, columns: Sequence[str]) -> str | None:
    start = text[:BEGINNING].lstrip()
    if start.startswith((b"{", b"[")):
        return "jsonl" if start.startswith(b"{") else "json"
    if _FASTTEXT.search(start):
        return "fasttext"
    by_name = _EXTENSIONS.get(extension(name))
    lines = [line for line in text[:BEGINNING].splitlines() if line.strip()]
    first = lines[0] if lines else b""
    if by_name in ("csv", "jsonl"):
        return by_name
    if b"\t" in first and not _FEATURES.fullmatch(first):
        # the last line may be cut off
        return _tabbed_kind(lines[:-1] if len(lines) > 1 and len(text) >= BEGINNING else lines, columns)
    if columns and all(
        column.encode() in re.split(rb"[,;|]", first.replace(b'"', b"")) for column in columns
    ):
        return "csv"
    return by_name


def _tabbed_kind(lines: Sequence[bytes], columns: Sequence[str]) -> str:
    rows = [line.split(b"\t") for line in lines]
    header = [cell.strip(b'" ').lower() for cell in rows[0]]
    if columns and all(column.lower().encode() in header for column in columns):
        return "tsv"
    most = 0.9 * len(rows)  # a few lines may be faulty
    if sum(len(row) == 2 and _URIS.fullmatch(row[1]) is not None for row in rows) >= most:
        return "annif"
    if sum(len(row) >= 2 and _IDS.fullmatch(row[0].strip()) is not None for row in rows) >= most:
        if sum(len(row) == 3 for row in rows) < most:
            return "pecos"
        return "libmultilabel"
    if len(rows[0]) == 3 and sum(len(row) == 3 for row in rows) >= most and not _COLUMN_NAMES & set(header):
        return "libmultilabel"
    return "tsv"


def _first_line(data: bytes) -> bytes:
    return data[:4096].removeprefix(_BYTE_ORDER_MARK).partition(b"\n")[0]
