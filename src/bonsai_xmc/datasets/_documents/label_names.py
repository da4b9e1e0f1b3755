"""Names of labels from a file."""

import json
import os
from collections.abc import Iterator
from typing import Any

from bonsai_xmc._sniff import BEGINNING, sniff
from bonsai_xmc._store.files import opened

from .fields import IDS
from .formats import lines_of
from .problems import Problems

_IDS = (*IDS, "label", "uri", "notation", "code")
_NAMES = ("name", "prefLabel", "pref_label", "label", "text", "title")


def read_label_names(path: str | os.PathLike[str]) -> dict[str, str]:
    """Names of labels: lines ``id<TAB>name``, where further cells are ignored, or JSON objects.

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
    name = os.fspath(path)
    problems = Problems(name, strict=True)
    with opened(path) as file:
        beginning = file.read(BEGINNING)
    with opened(path) as file:
        if sniff(beginning) in ("jsonl", "json"):
            pairs = _from_json(lines_of(file, problems), problems)
        elif b"\t" in beginning:
            pairs = _from_cells(lines_of(file, problems), problems)
        else:
            pairs = ((str(number - 1), line.strip()) for number, line in lines_of(file, problems))
        names = {label: text for label, text in pairs if text}
    if not names:
        raise ValueError(f"{name} holds no names of labels")
    return names


def _from_cells(lines: Iterator[tuple[int, str]], problems: Problems) -> Iterator[tuple[str, str]]:
    for number, line in lines:
        cells = line.split("\t")
        if len(cells) >= 2:
            yield cells[0].strip().strip("<>"), cells[1].strip()
        elif line.strip():
            problems.add(number, "without a tab", "there is no tab between the label and its name")


def _from_json(lines: Iterator[tuple[int, str]], problems: Problems) -> Iterator[tuple[str, str]]:
    for number, line in lines:
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            problems.add(number, "not JSON", f"not valid JSON: {error}")
            continue
        yield _pair(record, number, problems)


def _pair(record: Any, number: int, problems: Problems) -> tuple[str, str]:
    if not isinstance(record, dict):
        problems.add(number, "no object", f"{record!r:.40} is not a JSON object")
    label = next((key for key in _IDS if key in record), None)
    name = next((key for key in _NAMES if key in record and key != label), None)
    if label is None or name is None:
        problems.add(number, "no id or name", f"{record!r:.60} has no id or no name")
        return "", ""
    return str(record[label]), str(record[name])
