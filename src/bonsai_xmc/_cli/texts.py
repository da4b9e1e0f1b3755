"""Documents, as the commands read them: which argument is a file; faulty rows are reported at the end."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from bonsai_xmc import TextBonsai
from bonsai_xmc._base.sniff import DOCUMENTS, KNOWN_EXTENSIONS
from bonsai_xmc.datasets import Document, Documents
from bonsai_xmc.datasets._documents import FORMATS
from bonsai_xmc.datasets._documents import Options as DocumentOptions
from bonsai_xmc.datasets._documents.fields import LIST
from bonsai_xmc.datasets._documents.problems import MAX_LINE

from .io import STANDARD, Inputs

CHUNK = 4096  # documents that are predicted at a time
_PROSE = 3  # words in the first line, which no file of features has


def holds_documents(args: argparse.Namespace, inputs: Inputs) -> bool:
    """Whether the argument DATA is a file of documents, and not of features."""
    if args.format != "auto":
        return args.format in FORMATS
    if args.text is not None or args.label_field is not None:
        return True
    if os.path.isdir(args.data):
        return False
    kind = inputs.kind(args.data)
    prose = kind in ("xc", "svmlight") and _begins_with_words(inputs.beginning(args.data))
    return kind in DOCUMENTS or prose


def _begins_with_words(beginning: bytes) -> bool:
    """Whether a file is prose, so that a message about documents helps more than one about features."""
    words = beginning.partition(b"\n")[0].decode(errors="replace").split()
    return sum(word.isalpha() for word in words) >= _PROSE


def is_file(argument: str) -> bool:
    """Whether an argument names a file; otherwise it is a text."""
    if argument == STANDARD or os.path.exists(argument):
        return True
    path = argument.startswith(("/", "./", "../")) and len(argument.split()) == 1
    if path or argument.lower().endswith(KNOWN_EXTENSIONS):
        raise FileNotFoundError(
            f"there is no file {argument!r}; if it is a text, pass it on standard input: "
            "echo TEXT | bonsai predict MODEL -"
        )
    return False


def documents_of(
    args: argparse.Namespace,
    inputs: Inputs,
    *,
    fields: tuple[str, ...] = (),
    labels: str | None = None,
    separator: str | None = None,
    complete: bool = True,
) -> Documents:
    """The documents of the argument DATA, read as the options say."""
    options = DocumentOptions(
        fields or tuple(args.text or ()),
        getattr(args, "label_field", None) or labels,
        getattr(args, "label_separator", None) or "auto",
        complete,
        args.strict,
        MAX_LINE if args.max_line is None else args.max_line,
        separator or "auto",
    )
    return inputs.documents(args.data, args.format if args.format in FORMATS else "auto", options)


def of_model(
    args: argparse.Namespace, model: TextBonsai, inputs: Inputs, *, complete: bool, more: Sequence[str] = ()
) -> Iterator[list[Document]]:
    """The documents of the argument DATA in chunks, read as the training file of the model was.

    `more` are names of fields that `text` of a document holds, too.
    """
    text = model.fitted_.text
    assert text is not None
    fields = text.plan.fields or tuple(args.text or ())
    fields = (*fields, *(name for name in more if name not in fields))
    separator = text.source.get("separator")
    if separator == LIST:  # the training file had lists, which need none; another one may have strings
        separator = None
    labels = text.source.get("labels")
    documents = documents_of(
        args, inputs, fields=fields, labels=labels, separator=separator, complete=complete
    )
    iterator = iter(documents)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk
    report(documents)


def texts_of(chunk: list[Document], model: TextBonsai) -> list[Any]:
    """The texts of documents as the model takes them: records, or strings if it has no fields."""
    text = model.fitted_.text
    assert text is not None
    if text.plan.fields:
        return [d.text if isinstance(d.text, str) else {**d.text} for d in chunk]
    return [d.text if isinstance(d.text, str) else " ".join(filter(None, d.text.values())) for d in chunk]


def report(documents: Documents) -> None:
    """Report the faulty rows of a file that has been read."""
    for line in documents.problems.report():
        print(f"bonsai: warning: {line}", file=sys.stderr)
