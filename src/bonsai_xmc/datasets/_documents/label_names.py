"""Readers of names and other texts of labels."""

import os
import reprlib
from collections.abc import Iterator
from typing import Any

from bonsai_xmc._base.files import opened
from bonsai_xmc._base.sniff import BEGINNING, sniff
from bonsai_xmc._data.rows import check_encodable

from .fields import IDS, label_of, text_of
from .formats import Record, lines_of, read_jsonl
from .problems import Problems

_IDS = (*IDS, "label", "uri", "notation", "code")
_NAMES = ("name", "prefLabel", "pref_label", "label", "text", "title")
# Further texts: synonyms and descriptions.
_TEXTS = ("altLabel", "alt_label", "altLabels", "synonyms", "hiddenLabel", "description", "definition")
_SEPARATOR = "|"  # of the texts in a cell

Rows = Iterator[tuple[str, list[str]]]


def read_label_names(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read names of labels: lines ``id<TAB>name``, where further cells are ignored, or JSON objects.

    Objects hold the label as "id", "label", "uri", "notation" or "code", and its name as "name", "prefLabel",
    "label", "text" or "title". A file without tabs has a name on each line; the labels are then 0, 1, 2, ….

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from bonsai_xmc import datasets
    >>> file = pathlib.Path(tempfile.mkdtemp(), "names.tsv")
    >>> _ = file.write_text("gnd:1\\tBrick construction\\ngnd:2\\tHeating\\n")
    >>> datasets.read_label_names(file)
    {'gnd:1': 'Brick construction', 'gnd:2': 'Heating'}
    """
    names = {label: texts[0] for label, texts in _rows(path) if texts and texts[0]}
    if not names:
        raise ValueError(f"{os.fspath(path)} holds no names of labels")
    return names


def read_label_texts(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Read names, synonyms and descriptions of labels, the name first.

    A file as for `read_label_names`: lines ``id<TAB>name<TAB>text|text…``, with any number of cells; cells
    that hold nothing but labels of the file, such as their parents, are left out. JSON objects may have
    further texts in "altLabel", "synonyms", "description" or "definition": strings or lists of strings.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from bonsai_xmc import datasets
    >>> file = pathlib.Path(tempfile.mkdtemp(), "labels.tsv")
    >>> _ = file.write_text("7\\tBricks\\tclinker|brickwork\\n8\\tClay bricks\\t\\t7\\n")
    >>> datasets.read_label_texts(file)
    {'7': ['Bricks', 'clinker', 'brickwork'], '8': ['Clay bricks']}
    """
    rows = dict(_rows(path))
    texts = {}
    for label, cells in rows.items():
        found = [[part.strip() for part in cell.split(_SEPARATOR)] for cell in cells[1:]]
        others = [part for parts in found if not all(part in rows for part in parts) for part in parts]
        texts[label] = [text for text in dict.fromkeys([*cells[:1], *others]) if text]
    texts = {label: own for label, own in texts.items() if own}
    if not texts:
        raise ValueError(f"{os.fspath(path)} holds no texts of labels")
    return texts


def _rows(path: str | os.PathLike[str]) -> Rows:
    """Yield (label, name and further cells) of each line."""
    problems = Problems(os.fspath(path), strict=True)
    with opened(path) as file:
        beginning = file.read(BEGINNING)
    with opened(path) as file:
        if sniff(beginning) in ("jsonl", "json"):
            yield from _from_json(read_jsonl(file, problems), problems)
        elif b"\t" in beginning:
            yield from _from_cells(lines_of(file, problems), problems)
        else:
            yield from ((str(number - 1), [line.strip()]) for number, line in lines_of(file, problems))


def _from_cells(lines: Iterator[tuple[int, str]], problems: Problems) -> Rows:
    for number, line in lines:
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) >= 2:
            yield cells[0].strip("<>"), cells[1:]
        elif line.strip():
            problems.add(number, "without a tab", "there is no tab between the label and its name")


def _from_json(records: Iterator[Record], problems: Problems) -> Rows:
    for number, record in records:
        try:
            row = _from_record({key: value for key, value in (record or {}).items() if value is not None})
        except ValueError as error:
            raise ValueError(f"{problems.name}, line {number}: {error}") from error
        yield row


def _from_record(record: dict[str, Any]) -> tuple[str, list[str]]:
    label = next((key for key in _IDS if key in record), None)
    name = next((key for key in _NAMES if key in record and key != label), None)
    if label is None or name is None:
        raise ValueError(f"{reprlib.repr(record)} has no id or no name")
    others = [record[key] for key in _TEXTS if key in record]
    further = [text for value in others for text in (value if isinstance(value, list) else [value])]
    key = label_of(record[label])
    texts = [text_of(record[name]), *(text for text in further if isinstance(text, str))]
    for text in texts:
        check_encodable(text, f"the label {key!r} has the text")
    return key, texts
