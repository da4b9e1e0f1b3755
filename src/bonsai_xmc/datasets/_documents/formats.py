"""Formats of documents: each a function from an open file to records with line numbers."""

import csv
import json
import reprlib
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, BinaryIO

from bonsai_xmc._base.hints import needed

from .problems import Problems

Record = tuple[int, dict[str, Any] | None]  # line, values by field or None for a faulty line
Reader = Callable[[BinaryIO, Problems], Iterator[Record]]

_BYTE_ORDER_MARK = "\ufeff"
_LONGEST_CELL = 2**31 - 1
_LABEL_PREFIX = "__label__"
_BATCH = 1024  # rows of a Parquet file at a time


def lines_of(file: BinaryIO, problems: Problems) -> Iterator[tuple[int, str]]:
    """Yield numbered lines without their ends; bytes that are not UTF-8 become U+FFFD."""
    most = problems.max_line
    for number, line in enumerate(iter(lambda: file.readline(most + 1), b""), 1):
        if len(line) > most:
            raise problems.too_long(number, "it")
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            what = "with bytes that are not UTF-8: these were replaced, see --encoding"
            problems.add(number, what, f"not UTF-8: {error}; --encoding (encoding=) names another encoding")
            text = line.decode(errors="replace")
        yield number, (text.removeprefix(_BYTE_ORDER_MARK) if number == 1 else text).rstrip("\r\n")


def read_jsonl(file: BinaryIO, problems: Problems) -> Iterator[Record]:
    for number, line in lines_of(file, problems):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            problems.add(number, "with invalid JSON: left out", f"not valid JSON: {error}")
            yield number, None
            continue
        yield number, _object(value, number, problems)


def read_json(file: BinaryIO, problems: Problems) -> Iterator[Record]:
    """Read a JSON array as a whole; JSONL is the format for streams."""
    try:
        values = json.loads(file.read().decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{problems.name} is not a JSON array: {error}") from error
    if not isinstance(values, list):
        raise ValueError(
            f"{problems.name} holds one JSON {type(values).__name__}, but not an array of objects"
        )
    for number, value in enumerate(values, 1):
        yield number, _object(value, number, problems)


def _object(value: Any, number: int, problems: Problems) -> dict[str, Any] | None:
    if isinstance(value, dict):
        return value
    detail = f"{reprlib.repr(value)} is not a JSON object"
    problems.add(number, "with JSON that is not an object: left out", detail)
    return None


def read_csv(file: BinaryIO, problems: Problems) -> Iterator[Record]:
    csv.field_size_limit(_LONGEST_CELL)  # for the whole process; the default is 128 KiB
    lines = lines_of(file, problems)
    first = next(lines, (1, ""))
    delimiter = max(",;\t|", key=first[1].count)
    size = 0  # of the lines that belong to a row

    def counted() -> Iterator[str]:
        nonlocal size
        begin = 1
        for number, line in chain([first], lines):
            begin = number if size == 0 else begin
            size += len(line) + 1
            if size > problems.max_line:
                raise problems.too_long(begin, "the row that begins there (is a quote not closed?)")
            yield line + "\n"

    def rows() -> Iterator[tuple[int, list[str]]]:
        nonlocal size
        reader = csv.reader(counted(), delimiter=delimiter)
        try:
            for row in reader:
                size = 0
                yield reader.line_num, row
        except csv.Error as error:
            raise ValueError(f"{problems.name}, line {reader.line_num}: {error}") from error

    return _table(rows(), problems)


def read_tsv(file: BinaryIO, problems: Problems) -> Iterator[Record]:
    """Read cells that hold no tab or line end; quotes around a whole cell are removed."""
    rows = ((number, [_unquoted(c) for c in line.split("\t")]) for number, line in lines_of(file, problems))
    return _table(rows, problems)


def _unquoted(cell: str) -> str:
    quoted = len(cell) >= 2 and cell[0] == cell[-1] == '"'
    return cell[1:-1].replace('""', '"') if quoted else cell


def _table(rows: Iterator[tuple[int, list[str]]], problems: Problems) -> Iterator[Record]:
    header = [name.strip() for name in next(rows, (0, []))[1]]
    name, n = next(iter(Counter(header).most_common(1)), ("", 0))
    if n > 1:
        raise ValueError(f"{problems.name}: {n} columns are called {name!r}")
    for number, row in rows:
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(header):
            problems.add(
                number,
                "with another number of cells than the first line: left out",
                f"{len(row)} cells, but the first line names {len(header)}",
            )
            yield number, None
        else:
            yield number, dict(zip(header, row, strict=True))


def _by_line(parse: Callable[[str], dict[str, Any]]) -> Reader:
    """Return a reader of files that hold a document on each line; blank ones are left out."""

    def read(file: BinaryIO, problems: Problems) -> Iterator[Record]:
        return ((number, parse(line)) for number, line in lines_of(file, problems) if line.strip())

    return read


def _annif(line: str) -> dict[str, Any]:
    text, tab, uris = line.rpartition("\t")
    return {"text": text, "labels": uris} if tab else {"text": line, "labels": []}


def _pecos(line: str) -> dict[str, Any]:
    ids, tab, text = line.partition("\t")
    labels = [label.partition("::")[0].strip() for label in ids.split(",") if label.strip()]
    return {"text": text, "labels": labels} if tab else {"text": line, "labels": []}


def _fasttext(line: str) -> dict[str, Any]:
    words = line.split()
    labels = [w.removeprefix(_LABEL_PREFIX) for w in words if w.startswith(_LABEL_PREFIX)]
    return {"text": " ".join(w for w in words if not w.startswith(_LABEL_PREFIX)), "labels": labels}


def read_libmultilabel(file: BinaryIO, problems: Problems) -> Iterator[Record]:
    """Read labels and texts; whether there are ids is seen from the first line."""
    names: tuple[str, ...] = ()
    for number, line in lines_of(file, problems):
        if not line.strip():
            continue
        names = names or (("labels", "text") if line.count("\t") == 1 else ("id", "labels", "text"))
        cells = line.split("\t", len(names) - 1)
        if len(cells) == len(names):
            record: dict[str, Any] = dict(zip(names, cells, strict=True))
            yield number, {**record, "labels": record["labels"].split()}
            continue
        what = f"without the cells {', '.join(names[:-1])} and text: left out"
        problems.add(number, what, f"{len(cells)} cells, not {len(names)}")
        yield number, None


def read_lines(file: BinaryIO, problems: Problems) -> Iterator[Record]:
    """Read texts without labels, one on each line."""
    for number, line in lines_of(file, problems):
        yield number, {"text": line}


def read_parquet(file: BinaryIO, problems: Problems) -> Iterator[Record]:
    parquet = needed("pyarrow.parquet", f"{problems.name} is a Parquet file, which needs", "pyarrow")
    number = 0
    try:
        for batch in parquet.ParquetFile(file).iter_batches(batch_size=_BATCH):
            for record in batch.to_pylist():
                number += 1
                yield number, record
    except (ValueError, OSError) as error:  # pyarrow's own errors are subclasses of these
        raise ValueError(f"{problems.name} is not a valid Parquet file: {error}") from error


def read_xlsx(file: BinaryIO, problems: Problems) -> Iterator[Record]:
    """Read the first sheet of a workbook, whose first row names the columns."""
    what = f"{problems.name} is a workbook of Excel, which needs"
    openpyxl = needed("openpyxl", what, "'bonsai-xmc[excel]'; or save it as CSV (UTF-8)")
    try:
        sheet = openpyxl.load_workbook(file, read_only=True, data_only=True).worksheets[0]
        rows = [
            ["" if cell is None else str(cell) for cell in row] for row in sheet.iter_rows(values_only=True)
        ]
    except Exception as error:  # whatever a damaged archive or its XML gives
        raise ValueError(f"{problems.name} is not a valid workbook of Excel: {error}") from error
    width = max((i + 1 for i, cell in enumerate(rows[0]) if cell), default=0) if rows else 0
    return _table(((number, row[:width]) for number, row in enumerate(rows, 1)), problems)


READERS: dict[str, Reader] = {
    "jsonl": read_jsonl,
    "json": read_json,
    "csv": read_csv,
    "tsv": read_tsv,
    "annif": _by_line(_annif),
    "pecos": _by_line(_pecos),
    "libmultilabel": read_libmultilabel,
    "fasttext": _by_line(_fasttext),
    "parquet": read_parquet,
    "xlsx": read_xlsx,
    "lines": read_lines,
}
#: Kinds whose records have no fields but one text.
PLAIN = ("annif", "pecos", "libmultilabel", "fasttext", "lines")
