"""Detection of the fields with texts and labels, and conversion of cells to labels and texts."""

import ast
import json
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from bonsai_xmc._base.hints import did_you_mean
from bonsai_xmc._data.rows import check_encodable
from bonsai_xmc._text.blocks import is_title

_LABELS = (
    "labels", "label", "subjects", "subject", "tags", "tag", "categories", "category", "keywords", "topics",
    "topic", "concepts", "classes", "codes",
)  # fmt: skip
IDS = ("id", "ID", "_id", "doc_id", "uid", "identifier")

# Mean length from which a field of strings, most with blanks, counts as text.
_LONG = 15
_NAMED = 50  # fields that a message lists
_SEPARATORS = ("|", ";", "\t", ",")

#: Ways of splitting strings into labels; see `split_labels`.
LIST, URIS, NONE, ANNIF = "list", "uris", "none", "annif"
_MARKS = ";,|"  # separators in use where Annif has blanks

Sample = Sequence[Mapping[str, Any]]


def guess_text_fields(sample: Sample, labels: str | None, name: str) -> list[str]:
    """Find the fields of a sample of records that hold texts, the title first."""
    found = [field for field in _all_fields(sample) if field != labels and _is_text(field, sample)]
    if not found:
        raise ValueError(
            f"{name}: which fields hold the text? {_name_them(sample)}: name them by --text (text=)"
        )
    return sorted(found, key=lambda field: not is_title(field))


def guess_label_field(sample: Sample, name: str) -> str:
    """Find the field of a sample of records that holds the labels."""
    fields = _all_fields(sample)
    known = [field for field in _LABELS if field in fields]
    lists = [field for field in fields if _is_list(field, sample)]
    candidates = known[:1] or lists
    if len(candidates) == 1:
        return candidates[0]
    raise ValueError(
        f"{name}: which field holds the labels? {_name_them(sample)}: name it by --labels (labels=)"
    )


def _name_them(sample: Sample) -> str:
    fields = _all_fields(sample)
    more = f" and {len(fields) - _NAMED:,} more" if len(fields) > _NAMED else ""
    return f"There are {', '.join(map(repr, fields[:_NAMED]))}{more}"


def check_fields(fields: Sequence[str], sample: Sample, name: str) -> None:
    """Raise ValueError if no record of a sample has one of the fields."""
    present = _all_fields(sample)
    for field in fields:
        if sample and field not in present:
            hint = did_you_mean(field, present) or f". {_name_them(sample)}"
            raise ValueError(f"{name} has no field {field!r}{hint}")


def _all_fields(sample: Sample) -> list[str]:
    return list(dict.fromkeys(field for record in sample for field in record))


def _is_text(field: str, sample: Sample) -> bool:
    values = [record[field] for record in sample if record.get(field) not in (None, "")]
    if not values or not all(isinstance(value, str) for value in values):
        return False
    words = sum(" " in value.strip() for value in values)
    long = sum(len(value) for value in values) >= _LONG * len(values)
    return is_title(field) or field == "text" or (long and 2 * words > len(values))


def _is_list(field: str, sample: Sample) -> bool:
    values = [record[field] for record in sample if record.get(field) is not None]
    return any(values) and all(isinstance(value, list) for value in values)


def guess_separator(cells: Sequence[Any]) -> str:
    """Guess the separator of labels in strings, or one of the ways above."""
    texts = [cell.strip() for cell in cells if isinstance(cell, str) and cell.strip()]
    if not texts:
        return LIST
    if all(text[0] == "[" and text[-1] == "]" for text in texts):
        return LIST
    if all(word[0] == "<" and word[-1] == ">" for text in texts for word in text.split()):
        return URIS
    return next((mark for mark in _SEPARATORS if any(mark in text for text in texts)), NONE)


def split_labels(value: Any, separator: str) -> list[str]:
    """Return the labels of a row: items of a list, or parts of a string; ValueError for anything else.

    `separator` "list": a string is a list in JSON or Python notation; "uris": ``<uri> <uri>``; "none": it is
    one label; "space": it is split at blanks; "annif": as Annif does, at blanks, but a label that ends with
    another separator is an error.
    """
    if value is None:
        return []
    if isinstance(value, str):
        value = _parts(value.strip(), separator)
    elif isinstance(value, int) and not isinstance(value, bool):
        value = [value]
    if not isinstance(value, list):
        raise ValueError(f"labels are a list or a string, not {reprlib.repr(value)}")
    labels = [label_of(item) for item in value]
    return list(dict.fromkeys(label for label in labels if label))


def _parts(text: str, separator: str) -> list[Any]:
    if not text:
        return []
    if separator == LIST:
        return _listed(text)
    if separator == ANNIF:
        _check_blanks(text)
        separator = URIS
    if separator in (URIS, "space"):
        return [part.strip("<>") if separator == URIS else part for part in text.split()]
    return [text] if separator == NONE else text.split(separator)


class OtherSeparator(ValueError):
    """An error: labels that should be separated by blanks are separated by a mark."""

    def __init__(self, mark: str, label: str) -> None:
        super().__init__(
            f"labels are separated by blanks here, but there is {label!r}; if {mark!r} separates them, pass "
            f"--label-separator {mark!r} (label_separator=), and if it is part of the label, space"
        )
        self.mark = mark


def _check_blanks(text: str) -> None:
    for word in text.split():
        uri = "://" in word or (word[0] == "<" and word[-1] == ">")
        mark = next((m for m in _MARKS if word.endswith(m) or (m != "," and m in word and not uri)), None)
        if mark is not None:
            raise OtherSeparator(mark, word)


def _listed(text: str) -> list[Any]:
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(value, list):
            return value
    return [text]


def label_of(item: Any) -> str:
    """Return a label as a string; ValueError for what no model can store."""
    if isinstance(item, str):
        label = " ".join(item.split())
        check_encodable(label, "a label is")
        return label
    if isinstance(item, int) and not isinstance(item, bool):
        return str(item)
    raise ValueError(f"a label is a string or an integer, not {reprlib.repr(item)}")


def text_of(value: Any) -> str:
    """Return the text of a field: a string, a number, or a list of these; ValueError for anything else."""
    if isinstance(value, list):
        return " ".join(map(_part_of_text, value))
    return _part_of_text(value)


def _part_of_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None or value != value:  # NaN is a missing value
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise ValueError(f"a text is a string, not {reprlib.repr(value)}")
