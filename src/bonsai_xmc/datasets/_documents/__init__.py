"""Documents with labels, read as a stream from files of many formats."""

import codecs
import contextlib
import io
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, BinaryIO, NamedTuple, cast

from bonsai_xmc._base.files import decompressed
from bonsai_xmc._base.hints import did_you_mean
from bonsai_xmc._base.sniff import BEGINNING, DOCUMENTS, sniff

from . import fields as _fields
from .formats import PLAIN, READERS, Record
from .label_names import read_label_names, read_label_texts
from .problems import MAX_LINE, Problems

__all__ = [
    "FORMATS",
    "Document",
    "Documents",
    "Problems",
    "read_documents",
    "read_label_names",
    "read_label_texts",
]

FORMATS = (*DOCUMENTS, "lines")

_SAMPLE = 200  # records from which the fields of texts and labels are detected
_SAMPLE_VALUES = 1_000_000  # values in them at most, which bounds time and memory
_WORDS = 3  # in the name of a column at most
_BYTE_ORDER_MARKS = (b"\xff\xfe", b"\xfe\xff")  # of UTF-16


class Document(NamedTuple):
    """One document of a file."""

    line: int  # first line; in a JSON array, Parquet or Excel file the number of the row, from 1
    id: str | None
    text: str | dict[str, str]  # by field, if the file has fields
    labels: list[str]


class Options(NamedTuple):
    """Options of reading; see `read_documents`."""

    text: tuple[str, ...] = ()
    labels: str | None = None
    separator: str = "auto"
    complete: bool = True
    strict: bool = False
    max_line: int = MAX_LINE
    table_separator: str = "auto"  # for files with fields, if `separator` is auto
    encoding: str | None = None  # None for UTF-8, or UTF-16 with a byte order mark


class Documents:
    """The documents of a file, from `read_documents`, for a single iteration.

    Attributes
    ----------
    name, kind : str
        Name of the file in messages, and its format.
    fields : tuple of str
        The fields that hold texts; empty where documents are plain strings.
    label_field : str or None
        The field that holds labels; None if there is none.
    separator : str
        Separator of labels in strings.
    problems : Problems
        Faults found so far: ``problems.report()`` is a list of sentences.
    """

    def __init__(self, file: BinaryIO, name: str, kind: str, options: Options) -> None:
        self.name, self.kind = name, kind
        unit = "row" if kind in ("json", "parquet", "xlsx") else "line"
        self.problems = Problems(name, options.strict, unit, options.max_line)
        self._complete = options.complete
        self._close = contextlib.ExitStack()
        records = READERS[kind](file, self.problems)
        self.problems.hold()
        head = list(_first(records))
        self._early = deque(self.problems.release())
        self._records: Iterable[Record] = chain(head, records)
        sample = [record for _, record in head if record is not None]
        self.fields: tuple[str, ...] = ()
        self.label_field: str | None = "labels"
        self.separator = _fields.LIST
        if kind not in PLAIN:
            try:
                self._choose_fields(sample, options)
            except ValueError as error:
                raise ValueError(f"{error}{_no_header(kind, sample)}") from None
        elif kind == "annif":
            self.separator = _fields.ANNIF if options.separator == "auto" else options.separator
        elif options.separator != "auto":
            raise ValueError(
                f"{name} is a file of {kind}, a format that fixes how labels are separated, so "
                "label_separator (--label-separator) must not be given"
            )
        self._id = next((field for field in _fields.IDS if any(field in record for record in sample)), None)

    def _choose_fields(self, sample: _fields.Sample, options: Options) -> None:
        text, labels = options.text, options.labels
        separator = options.table_separator if options.separator == "auto" else options.separator
        if not sample:
            self.fields, self.label_field = text, labels
            return
        if labels is None and self._complete:
            labels = _fields.guess_label_field(sample, self.name)
        self.label_field = labels
        if labels is not None and self._complete:
            _fields.check_fields([labels], sample, self.name)
        self.fields = tuple(text or _fields.guess_text_fields(sample, labels, self.name))
        if self._complete:
            _fields.check_fields(self.fields, sample, self.name)
        elif not any(field in record for field in self.fields for record in sample):
            _fields.check_fields(self.fields[:1], sample, self.name)
        cells = [record.get(labels) for record in sample] if labels is not None else []
        self.separator = _fields.guess_separator(cells) if separator == "auto" else separator

    def __iter__(self) -> Iterator[Document]:
        with self._close:
            for line, record in self._records:
                while self._early and self._early[0][0] <= line:
                    self.problems.add(*self._early.popleft())
                document = self._document(line, record)
                if document is not None:
                    yield document
            for fault in self._early:
                self.problems.add(*fault)

    def closing(self, stack: contextlib.ExitStack) -> None:
        """Set the files to close after the last document."""
        self._close = stack

    def __enter__(self) -> "Documents":
        return self

    def __exit__(self, *error: Any) -> None:
        self._close.close()

    def _document(self, line: int, record: dict[str, Any] | None) -> Document | None:
        """Return a document, or None for a row that is left out, which happens only with `complete`."""
        if record is None:
            return None if self._complete else Document(line, None, "", [])
        given = None if self._id is None else record.get(self._id)
        identifier = None if given is None or isinstance(given, dict | list) else str(given)
        self._tell_missing(line, record)
        try:
            text = self._text(record)
            labels = []
            if self.label_field is not None:
                labels = _fields.split_labels(record.get(self.label_field), self.separator)
        except _fields.OtherSeparator as error:
            what = f"with labels that {error.mark!r} separates, not blanks: left out, see --label-separator"
            self.problems.add(line, what, str(error))
            return None if self._complete else Document(line, identifier, text, [])
        except ValueError as error:
            self.problems.add(line, "with values that are neither text nor labels: left out", str(error))
            return None if self._complete else Document(line, identifier, "", [])
        if not any(text.values()) if isinstance(text, dict) else not text.strip():
            self.problems.add(line, f"without text: {'left out' if self._complete else 'nothing predicted'}")
            return None if self._complete else Document(line, identifier, text, labels)
        if self._complete and not labels:
            self.problems.add(line, "without labels: left out")
            return None
        return Document(line, identifier, text, labels)

    def _tell_missing(self, line: int, record: dict[str, Any]) -> None:
        for field in self.fields:
            if field not in record:
                self.problems.add(line, f"without the field {field!r}: it counts as empty")
        if self._complete and self.label_field is not None and self.label_field not in record:
            self.problems.add(line, f"without the field {self.label_field!r}")

    def _text(self, record: dict[str, Any]) -> str | dict[str, str]:
        if not self.fields:
            return _fields.text_of(record["text"])
        return {field: _fields.text_of(record.get(field)) for field in self.fields}


def _no_header(kind: str, sample: _fields.Sample) -> str:
    """Return an end for messages about a table whose first line seems to be a row."""
    prose = next((name for name in (sample[0] if sample else ()) if len(name.split()) > _WORDS), None)
    if kind not in ("csv", "tsv", "xlsx") or prose is None:
        return ""
    return f"; the first line of a table names its columns, but here it holds {prose[:40]!r}: add such a line"


def read_documents(
    path: str | os.PathLike[str],
    *,
    text: str | Sequence[str] | None = None,
    labels: str | None = None,
    format: str = "auto",
    label_separator: str = "auto",
    complete: bool = True,
    strict: bool = False,
    max_line: int = MAX_LINE,
    encoding: str | None = None,
) -> Documents:
    """Read documents with their labels, as a stream.

    Parameters
    ----------
    path : path
        JSON lines, a JSON array, CSV or TSV with a header, Annif's TSV, the input of PECOS text2text,
        LibMultiLabel or fastText, Parquet (needs pyarrow) or Excel (needs openpyxl); text may be compressed
        by gzip, bzip2 or xz. "-": standard input.
    text : str or list of str, optional
        The fields that hold texts; one string may name several, with commas between. Default: guessed
        from the first rows, the title first. Formats without fields need none.
    labels : str, optional
        The field that holds the labels. Default: the one with a usual name ("labels", "subjects", …), or the
        only one that holds lists.
    format : {"auto", "jsonl", "json", "csv", "tsv", "annif", "pecos", "libmultilabel", "fasttext", \
"parquet", "xlsx", "lines"}
        "auto" detects it by content and name. "lines": a text on each line, no labels.
    label_separator : str, default="auto"
        The separator of labels in a string that holds several, "space" for any white space, or "none" for a
        single label. "auto": the first of ``| ; tab ,`` that occurs in the first rows, if any does; in
        Annif's TSV blanks.
    complete : bool, default=True
        Leave out rows without text or labels. False: keep all rows; labels are not needed.
    strict : bool, default=False
        Raise ValueError at the first faulty row. Otherwise faults are counted in `problems`.
    max_line : int, default=67108864
        Bytes of the longest line, or of the longest row of a CSV file. A longer one, such as one without end
        because a quote is not closed, is a ValueError. Neither JSON arrays nor Parquet files have lines.
    encoding : str, optional
        The encoding of the text, such as "windows-1252". Default: UTF-8, or UTF-16 with a byte order mark.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from bonsai_xmc import datasets
    >>> file = pathlib.Path(tempfile.mkdtemp(), "docs.csv")
    >>> _ = file.write_text("id,title,subjects\\n1,Old brick houses,bricks;houses\\n2,Heat pumps,\\n")
    >>> documents = datasets.read_documents(file)
    >>> for document in documents:
    ...     print(document.text, document.labels)
    {'title': 'Old brick houses'} ['bricks', 'houses']
    >>> len(documents.problems)
    1
    """
    options = Options(_names(text), labels, label_separator, complete, strict, max_line, encoding=encoding)
    return open_file(path, format, options)


def open_file(path: str | os.PathLike[str], format: str, options: Options) -> Documents:
    """Open the documents of a file; "-" is standard input."""
    name = "standard input" if path == "-" else os.fspath(path)
    with contextlib.ExitStack() as stack:
        if path == "-":
            raw = cast(io.BufferedReader, sys.stdin.buffer)
        else:
            raw = stack.enter_context(open(path, "rb"))
        file: BinaryIO = stack.enter_context(decompressed(raw, name))
        documents = open_documents(file, name, format, options)
        documents.closing(stack.pop_all())
        return documents


def _first(records: Iterator[Record]) -> Iterator[Record]:
    """Yield the sample from which fields are detected: fewer records if they have very many fields."""
    values = 0
    for record in islice(records, _SAMPLE):
        yield record
        values += len(record[1] or ())
        if values >= _SAMPLE_VALUES:
            return


def _names(text: str | Sequence[str] | None) -> tuple[str, ...]:
    if isinstance(text, str):
        text = text.split(",")
    return tuple(field.strip() for field in text or () if field.strip())


def open_documents(file: BinaryIO, name: str, format: str, options: Options) -> Documents:
    """Read the documents of an open, decompressed file."""
    if options.max_line < 1:
        raise ValueError(f"max_line is {options.max_line}, but must be at least 1")
    if format != "auto" and format not in FORMATS:
        raise ValueError(f"format is {format!r}, but must be auto or one of {', '.join(FORMATS)}")
    parts = iter(lambda: file.read(BEGINNING), b"")
    beginning = _gathered(parts)
    encoding = options.encoding or ("utf-16" if beginning[:2] in _BYTE_ORDER_MARKS else None)
    if encoding is not None:
        parts = _in_utf8(chain([beginning], parts), name, encoding)
        beginning = _gathered(parts)
    kind = _document_kind(beginning, name, options) if format == "auto" else format
    if kind not in ("parquet", "xlsx"):
        stream: Any = io.BufferedReader(_Stream(chain([beginning], parts)), BEGINNING)
    else:  # which need random access
        stream = file if file.seekable() else io.BytesIO(b"".join([beginning, *parts]))
        stream.seek(0)
    return Documents(stream, name, kind, options)


def _document_kind(beginning: bytes, name: str, options: Options) -> str:
    kind = sniff(beginning, name, [*options.text, *([options.labels] if options.labels else [])])
    if kind not in ("parquet", "xlsx", "npz", "npy", "model") and b"\0" in beginning:
        raise ValueError(f"{name} is not a text file: it holds NUL bytes")
    if kind == "empty" or (
        kind not in DOCUMENTS and not options.complete and not _is_numeric(kind, beginning)
    ):
        return "lines"
    if kind not in FORMATS:
        raise ValueError(
            f"{name} is not a file of documents in a known format; if it is, name the format: "
            f"--format (format=) {', '.join(FORMATS)}"
        )
    return kind


def _is_numeric(kind: str, beginning: bytes) -> bool:
    """Return whether a file of another kind is a matrix, a model or the like, and not text."""
    if kind not in ("xc", "matrix", "svmlight"):
        return True
    first = beginning.partition(b"\n")[0]
    return not any(byte >= 128 or chr(byte).isalpha() for byte in first)


def _gathered(parts: Iterator[bytes]) -> bytes:
    """Read enough parts to detect the kind of a file, as parts of a pipe may be short."""
    beginning = b""
    while len(beginning) < BEGINNING and (part := next(parts, None)) is not None:
        beginning += part
    return beginning


def _in_utf8(parts: Iterable[bytes], name: str, encoding: str) -> Iterator[bytes]:
    """Convert a text to UTF-8."""
    try:
        codecs.getincrementaldecoder(encoding)
    except LookupError:
        hint = did_you_mean(encoding, ["utf-8", "utf-16", "windows-1252", "iso-8859-1", "iso-8859-15"])
        raise ValueError(f"{name}: there is no encoding {encoding!r}{hint}") from None
    return (text.encode() for text in codecs.iterdecode(parts, encoding, "replace"))


class _Stream(io.RawIOBase):
    """Parts of bytes as a stream."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts, self._ready = parts, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and (part := next(self._parts, None)) is not None:
            self._ready = memoryview(part)
        ready, self._ready = self._ready[: len(buffer)], self._ready[len(buffer) :]
        buffer[: len(ready)] = ready
        return len(ready)
