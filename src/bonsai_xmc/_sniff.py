"""What a file is, by how its content begins. This is decided here and nowhere else.

========  ==================================================================================================
model     a file of `Bonsai.save`
npz, npy  files of `scipy.sparse.save_npz` and of `numpy.save`
xc        text, its first line a header ``rows features labels``
matrix    text, its first line a header ``rows columns``
svmlight  text without a header
empty     nothing
========  ==================================================================================================
"""

from typing import NamedTuple

#: Bytes that suffice to tell what a file is.
BEGINNING = 4096

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Source(NamedTuple):
    """The content of a file, decompressed, and what messages call it."""

    name: str
    data: bytes

    @property
    def kind(self) -> str:
        return sniff(self.data)

    @property
    def header(self) -> tuple[int, ...] | None:
        """The numbers in the header of a text; None where there is none, or a malformed one."""
        if self.kind not in ("xc", "matrix"):
            return None
        words = _first_line(self.data).split()
        return tuple(map(int, words)) if all(word.isdigit() for word in words) else None


def sniff(beginning: bytes) -> str:
    """The kind of a file; see the table above."""
    if not beginning:
        return "empty"
    if beginning.startswith(b"PK\x03\x04"):
        return "npz"
    if beginning.startswith(b"\x93NUMPY"):
        return "npy"
    # safetensors: the length of a JSON object, then the object; no such text begins with a brace
    if beginning[8:9] == b"{" and beginning[6:8] == b"\0\0":
        return "model"
    words = _first_line(beginning).split()
    if len(words) < 2 or any(b":" in word or b"#" in word for word in words):
        return "svmlight"
    return "matrix" if len(words) == 2 else "xc"


def _first_line(data: bytes) -> bytes:
    return data[:BEGINNING].removeprefix(_BYTE_ORDER_MARK).partition(b"\n")[0]
