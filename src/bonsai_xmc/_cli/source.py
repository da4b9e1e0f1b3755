"""Documents and matrices as streams of rows, labels and row numbers."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from bonsai_xmc._base.hints import similar_file
from bonsai_xmc._base.sniff import DOCUMENTS, KNOWN_EXTENSIONS
from bonsai_xmc._model.fusion import with_readers
from bonsai_xmc.datasets import Document, Documents
from bonsai_xmc.datasets._documents import FORMATS
from bonsai_xmc.datasets._documents import Options as DocumentOptions
from bonsai_xmc.datasets._documents.fields import LIST
from bonsai_xmc.datasets._documents.problems import MAX_LINE
from bonsai_xmc.datasets._reading import Expected

from .io import STANDARD, Inputs
from .parser import OF_DOCUMENTS, OF_FILES, OF_MATRICES, refuse

CHUNK = 4096  # documents that are predicted at a time
_PROSE = 3  # alphabetic words in the first line; files of features have fewer


class Part(NamedTuple):
    """Some rows: features or texts for the model, and labels as a matrix or as lists."""

    X: Any
    Y: Any
    rows: Sequence[int]  # counted from 1: lines of documents, rows of a matrix
    documents: list[Document] | None  # None for rows of a matrix


# What makes the X of a model from rows and their numbers.
Complete = Callable[[Any, Sequence[int]], Any]


class Matrices:
    """Rows of a matrix, in a single part."""

    problems: dict[str, int] = {}  # noqa: RUF012 (never changed)
    complete: Complete = staticmethod(lambda X, rows: X)

    def __init__(
        self, name: str, X: Any, Y: Any = None, id_base: int | None = None, seconds: float = 0
    ) -> None:
        self.name, self.seconds = name, seconds
        self._X, self._Y, self._id_base = X, Y, id_base
        self.numbers: Sequence[int] = range(1, X.shape[0] + 1)  # of the rows of `whole`

    def parts(self) -> Iterator[Part]:
        yield Part(self.complete(self._X, self.numbers), self._Y, self.numbers, None)

    def labelled(self) -> tuple[Any, Any]:
        """Return all rows and labels."""
        return self._X, self._Y

    whole = labelled

    def row(self, number: int | None) -> Any:
        """Return one row, by default the first."""
        number, n_rows = number or 1, self._X.shape[0]
        if number > n_rows:
            raise ValueError(f"--row is {number}, but {self.name} has {n_rows:,} rows")
        return self.complete(self._X[[number - 1]], [number])

    def remembered(self, model: Any) -> Any:
        """Return the model with the base of the feature ids in its training file."""
        return model._with(replace(model.fitted_, id_base=self._id_base))


class Texts:
    """Documents, read as a stream in parts."""

    complete: Complete = staticmethod(lambda X, rows: X)

    def __init__(
        self,
        documents: Documents | None,
        fields: Sequence[str],
        more: Sequence[str] = (),
        text: str | None = None,
    ) -> None:
        """Take the `fields` that the model reads; without any, all texts of a document are joined except
        those of `more` fields. `text` is a text given instead of a file.
        """
        self.documents, self.text, self.seconds = documents, text, 0.0
        self._fields, self._more = fields, more
        self.numbers: list[int] = []  # of the rows of `whole`, once they are read
        self.name = "the text" if documents is None else documents.name

    @property
    def problems(self) -> dict[str, int]:
        return {} if self.documents is None else self.documents.problems.counts

    def __iter__(self) -> Iterator[Document]:
        """Yield the documents, and report faults at the end."""
        if self.documents is None:
            yield Document(1, None, self.text or "", [])
            return
        iterator = iter(self.documents)
        begin = time.perf_counter()
        while (document := next(iterator, None)) is not None:
            self.seconds += time.perf_counter() - begin
            yield document
            begin = time.perf_counter()
        self.seconds += time.perf_counter() - begin
        for line in self.documents.problems.report():
            print(f"bonsai: warning: {line}", file=sys.stderr)

    def parts(self) -> Iterator[Part]:
        iterator = iter(self)
        while chunk := list(islice(iterator, CHUNK)):
            labels = [document.labels for document in chunk]
            rows = [document.line for document in chunk]
            yield Part(self.complete([self.read(d) for d in chunk], rows), labels, rows, chunk)

    def labelled(self) -> tuple[Iterator[Any], list[list[str]]]:
        """Return texts as a stream, and a list that receives their labels as the texts are read."""
        labels: list[list[str]] = []

        def texts() -> Iterator[Any]:
            for document in self:
                labels.append(document.labels)
                self.numbers.append(document.line)
                yield self.read(document)
            if not labels:
                raise ValueError(f"{self.name} holds no document with text and labels")

        return texts(), labels

    def whole(self) -> tuple[list[Any], list[list[str]]]:
        """Return all texts and labels."""
        texts, labels = self.labelled()
        return list(texts), labels

    def read(self, document: Document) -> Any:
        """Return the text of a document for the model: a record, or a string for models without fields."""
        if isinstance(document.text, str) or self._fields:
            return document.text
        return " ".join(text for field, text in document.text.items() if text and field not in self._more)

    def row(self, number: int | None) -> Any:
        """Return the document at a line, by default the first."""
        if self.text is not None and number is not None:
            raise ValueError("--row is for files, but a text was given")
        line = 0
        for document in self:
            line = document.line
            if number is None or line == number:
                found = self.complete([self.read(document)], [line])
                return found[0] if isinstance(found, list) else found
            if line > number:
                break
        if number is None:
            raise ValueError(f"{self.name} holds no document")
        near = "the next one is at" if line > number else "the last one is at"
        raise ValueError(
            f"--row is {number}, but {self.name} has no document at this line; {near} line {line}"
        )

    def remembered(self, model: Any) -> Any:
        """Return the model with the field and the separator of labels in its training file."""
        documents = self.documents
        assert documents is not None
        source = {"labels": documents.label_field, "separator": documents.separator}
        known: Any = lambda text: replace(text, source=source if documents.fields else {})
        return model._with(with_readers(model.fitted_, known))


Source = Texts | Matrices


def for_training(args: argparse.Namespace, inputs: Inputs) -> Source:
    """Return the rows of the argument DATA, documents or a matrix."""
    if holds_documents(args, inputs):
        return documents_of(args, inputs)
    refuse(args, OF_DOCUMENTS, f"is for documents, but {args.data} holds features")
    begin = time.perf_counter()
    rows = inputs.rows(args, Expected(args.n_features, args.n_labels))
    return Matrices(inputs.name(args.data), *rows, seconds=time.perf_counter() - begin)


def for_model(
    args: argparse.Namespace,
    model: Any,
    inputs: Inputs,
    *,
    labels: bool = True,
    new_labels: bool = False,
    more: Sequence[str] = (),
) -> Source:
    """Return the rows of the argument DATA for a model; documents are read like its training file.

    `labels`: leave out rows without labels. `new_labels`: allow labels that the model does not have. `more`:
    further fields to read.
    """
    from .lists import Lists

    lists = Lists.of(args, model.fitted_, inputs)
    if lists is None:
        text, n_features = model.fitted_.text, model.fitted_.n_features
    else:
        text, n_features = lists.text, lists.n_features
    found = _rows_for(args, model, inputs, text, n_features, labels, new_labels, more)
    if lists is not None:
        found.complete = lists
    return found


def _rows_for(
    args: argparse.Namespace,
    model: Any,
    inputs: Inputs,
    text: Any,
    n_features: int,
    labels: bool,
    new_labels: bool,
    more: Sequence[str],
) -> Source:
    """Return rows for models that read texts by `text`, or matrices of `n_features`."""
    if text is not None:
        if not labels and not is_file(args.data):
            refuse(args, OF_MATRICES, "is for matrices, but a text was given")
            refuse(args, OF_FILES, "is for files, but a text was given")
            return Texts(None, text.fields, text=args.data)
        given = {name.partition("=")[0] for name in args.text or ()}
        if text.fields and given - set(text.fields):
            raise ValueError(
                f"--text names {', '.join(sorted(given))}, but {args.model} reads the fields "
                f"{', '.join(text.fields)}: leave --text out, and give the file these fields"
            )
        fields = text.fields or tuple(args.text or ())
        fields = (*fields, *(name for name in more if name not in fields))
        texts = documents_of(args, inputs, fields, text.source, labels)
        assert texts.documents is not None
        return Texts(texts.documents, text.fields, more)
    refuse(args, OF_DOCUMENTS, f"is for documents, but {args.model} is a matrix model")
    expected = Expected(n_features, len(model.classes_), model.fitted_.id_base, args.model)
    name = inputs.name(args.data)
    if not labels:
        return Matrices(name, inputs.features(args, expected))
    if new_labels and not model.fitted_.labels.named and not model.fitted_.labels.keyed:
        expected = expected._replace(n_labels=None)
    return Matrices(name, *inputs.rows(args, expected))


def documents_of(
    args: argparse.Namespace,
    inputs: Inputs,
    fields: Sequence[str] = (),
    source: Any = None,
    complete: bool = True,
) -> Texts:
    """Return the documents of the argument DATA; `source` has the field and separator of training labels."""
    if getattr(args, "labels", None) is not None:
        raise ValueError(
            f"{args.data} holds documents with their labels, so LABELS must not be given; to name the field "
            f"of the labels: --labels {args.labels}"
        )
    refuse(args, OF_MATRICES, f"is for matrices, but {inputs.name(args.data)} holds documents")
    separator = (source or {}).get("separator")
    if separator == LIST:  # lists need no separator, but this file may have strings
        separator = None
    options = DocumentOptions(
        tuple(fields) or tuple(args.text or ()),
        getattr(args, "label_field", None) or (source or {}).get("labels"),
        getattr(args, "label_separator", None) or "auto",
        complete,
        args.strict,
        MAX_LINE if args.max_line is None else args.max_line,
        separator or "auto",
        args.encoding,
    )
    documents = inputs.documents(args.data, args.format if args.format in FORMATS else "auto", options)
    return Texts(documents, documents.fields)


def row_numbers(args: argparse.Namespace, inputs: Inputs, n_rows: int, name: str) -> Sequence[int]:
    """Return the numbers of the rows of DATA that the lines of a file of predictions are for."""
    numbers: Sequence[int] = range(1, n_rows + 1)
    if holds_documents(args, inputs):  # a row for each document, even for those without labels
        inputs.hold(args.data)
        options = argparse.Namespace(**vars(args) | {"label_field": None})
        numbers = [document.line for document in documents_of(options, inputs, complete=False)]
        if len(numbers) != n_rows:
            raise ValueError(f"{name} has {n_rows:,} rows, but {args.data} {len(numbers):,}")
    return numbers


def holds_documents(args: argparse.Namespace, inputs: Inputs) -> bool:
    """Return whether the argument DATA is a file of documents rather than features."""
    if args.format != "auto":
        return args.format in FORMATS
    if args.text is not None or args.label_field is not None or args.encoding is not None:
        return True
    if os.path.isdir(args.data):
        return False
    kind = inputs.kind(args.data)
    prose = kind in ("xc", "svmlight") and _begins_with_words(inputs.beginning(args.data))
    return kind in DOCUMENTS or prose


def _begins_with_words(beginning: bytes) -> bool:
    """Return whether a file is prose, for which messages about documents help more."""
    words = beginning.partition(b"\n")[0].decode(errors="replace").split()
    return sum(word.isalpha() for word in words) >= _PROSE


def is_file(argument: str) -> bool:
    """Return whether an argument is the name of a file rather than a text."""
    if argument == STANDARD or os.path.exists(argument):
        return True
    word = len(argument.split()) == 1
    path = word and argument.startswith(("/", "./", "../"))
    similar = similar_file(argument) if word and "." in argument else ""
    if path or similar or argument.lower().endswith(KNOWN_EXTENSIONS):
        raise FileNotFoundError(
            f"there is no file {argument!r}{similar}; if it is a text, pass it on standard input: echo "
            "TEXT | bonsai predict MODEL -"
        )
    return False
