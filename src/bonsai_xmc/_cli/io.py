"""Inputs and outputs of commands: files, pipes, and ``-`` for standard input and output."""

import argparse
import contextlib
import io
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from bonsai_xmc._base.files import check_writable, decompressed, opened, replacing_text
from bonsai_xmc._base.sniff import BEGINNING, Source, sniff
from bonsai_xmc._model.fitted import FittedModel
from bonsai_xmc._modelfile import format as model_file
from bonsai_xmc.datasets import Documents
from bonsai_xmc.datasets._documents import Options as DocumentOptions
from bonsai_xmc.datasets._documents import open_documents, open_file
from bonsai_xmc.datasets._folders import LONG_NAMES, find_part
from bonsai_xmc.datasets._reading import Expected, Options, Rows, open_rows, read_matrix

STANDARD = "-"  # standard input or output
_STANDARD_INPUT = "standard input"


class Inputs:
    """The inputs of one command. The content of pipes is kept, as they can be read only once."""

    def __init__(self, *paths: str | None, output: str | None = None, split: str | None = None) -> None:
        """Raise an error if `output` cannot be written or is one of the inputs, before reading anything."""
        given = [path for path in paths if path is not None]
        if given.count(STANDARD) > 1:
            raise ValueError("standard input (-) can be one of the inputs only")
        self._read: dict[str, Source] = {}
        if output is not None and output != STANDARD and not _is_stream(output):
            target = check_writable(output)
            for name in self._files(given, split):
                if name != STANDARD and _same_file(target, name):
                    raise ValueError(f"the output {output} is the input {name}; it would be overwritten")

    @staticmethod
    def _files(paths: list[str], split: str | None) -> Iterator[str]:
        """Yield the files of the inputs; of a folder, the files of its parts."""
        for path in paths:
            if not os.path.isdir(path):
                yield path
                continue
            for part in {*LONG_NAMES, "dev", split or "trn"}:
                with contextlib.suppress(OSError, ValueError):
                    yield from (str(file) for file in find_part(Path(path), part) if file is not None)

    def name(self, path: str) -> str:
        """Return the name of an input in messages."""
        return _STANDARD_INPUT if path == STANDARD else path

    def kind(self, path: str) -> str:
        """Return the kind of an input as in `sniff`, from its beginning."""
        return sniff(self.beginning(path), path)

    def beginning(self, path: str) -> bytes:
        """Return the first bytes of an input, decompressed."""
        if path in self._read or not _is_regular(path):
            return self.source(path).data[:BEGINNING]
        with opened(path) as file:
            return file.read(BEGINNING)

    def source(self, path: str) -> Source:
        """Return the whole content, decompressed."""
        if path not in self._read and not _is_regular(path):
            self._read[path] = _read_stream(path)
        if path in self._read:
            return self._read[path]
        with opened(path) as file:
            return Source(path, file.read())

    def hold(self, path: str) -> None:
        """Keep the content of a pipe that is needed several times."""
        if not _is_regular(path):
            self.source(path)

    @contextlib.contextmanager
    def file(self, path: str) -> Iterator[str]:
        """Provide a file with a name: the content of a pipe is in a temporary one."""
        if _is_regular(path):
            yield path
            return
        source = self.source(path)
        with tempfile.NamedTemporaryFile() as file:
            file.write(source.data)
            file.flush()
            try:
                yield file.name
            except ValueError as error:
                raise ValueError(str(error).replace(file.name, source.name)) from error

    def fitted(self, path: str, verify: bool = False) -> tuple[FittedModel, dict[str, Any]]:
        """Read a model and its prediction parameters, without importing estimators, which takes a second."""
        with self.file(path) as name:
            return model_file.load(name, mmap=name == path, verify=verify)

    def model(self, path: str) -> Any:
        """Return the estimator of a trained model."""
        from bonsai_xmc._estimators.text import restored

        return restored(*self.fitted(path), path)

    def documents(self, path: str, format: str, options: DocumentOptions) -> Documents:
        """Return a stream of documents, also of a pipe whose content is kept."""
        if path in self._read:
            source = self._read[path]
            return open_documents(io.BytesIO(source.data), source.name, format, options)
        return open_file(path, format, options)

    def rows(self, args: argparse.Namespace, expected: Expected) -> Rows:
        """Return features and labels of the arguments DATA and LABELS."""
        return self._rows(args, args.data, args.labels, args.split or args.usual_split, expected)

    def features(self, args: argparse.Namespace, expected: Expected) -> Any:
        """Return the features of the argument DATA, without labels."""
        if self._is_matrix(args.data):
            source, options = self.source(args.data), _options(args)
            return read_matrix(source, "feature", options.base, expected)[0]
        split = args.split or args.usual_split
        return self._rows(args, args.data, None, split, expected._replace(n_labels=None)).X

    def labels(self, args: argparse.Namespace, path: str, split: str, expected: Expected) -> Any:
        """Return labels from a file of labels, or from a file of rows, without features."""
        if self._is_matrix(path):
            source, base = self.source(path), _options(args).label_base
            return read_matrix(source, "label", base, expected)[0]
        # features are not used, so the base of their ids may be anything
        expected = expected._replace(n_features=None, id_base=0)
        return self._rows(args, path, None, split, expected).Y

    def _rows(
        self, args: argparse.Namespace, path: str, labels: str | None, split: str, expected: Expected
    ) -> Rows:
        return open_rows(path, labels, split, _options(args), expected, self.source)

    def _is_matrix(self, path: str) -> bool:
        """Return whether an input is a single matrix of features, labels or scores."""
        return not os.path.isdir(path) and self.kind(path) in ("matrix", "npz")


def distinct_names(paths: list[str]) -> list[str]:
    """Return distinct names for files, without folders and extensions if possible."""
    for names in ([os.path.splitext(os.path.basename(path))[0] for path in paths], paths):
        if len(set(names)) == len(names):
            return names
    return [f"{path} ({i})" for i, path in enumerate(paths, 1)]


def _options(args: argparse.Namespace) -> Options:
    base: Any = "auto" if args.base is None else args.base
    return Options(args.format, base, args.label_base or 0)


def _is_regular(path: str) -> bool:
    """Return whether a path is no pipe: a file or folder, or missing."""
    return path != STANDARD and not _is_stream(path)


def _read_stream(path: str) -> Source:
    """Read the whole content of a pipe, as its first part may be too short to detect its kind."""
    if path == STANDARD:
        name, packed = _STANDARD_INPUT, sys.stdin.buffer.read()
    else:
        name, packed = path, Path(path).read_bytes()
    with decompressed(io.BufferedReader(io.BytesIO(packed)), name) as file:
        return Source(name, file.read())


# Output


def _same_file(target: str, path: str) -> bool:
    if os.path.realpath(path) == target:
        return True
    try:
        return os.path.samefile(target, path)  # hard links
    except (OSError, ValueError):
        return False


def _is_stream(path: str) -> bool:
    """Return whether a path is a pipe or a device."""
    with contextlib.suppress(OSError, ValueError):
        mode = os.stat(path).st_mode
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
    return False


@contextlib.contextmanager
def writing(path: str | None) -> Iterator[BinaryIO]:
    """Open an output; files appear completely or not at all."""
    if path is None or path == STANDARD:
        yield sys.stdout.buffer
    elif _is_stream(path):
        with open(path, "wb") as stream:
            yield stream
    else:
        with replacing_text(path) as file:
            yield file


def save_model(model: Any, path: str) -> int:
    """Write a model to a file or a stream, and return its size in bytes."""
    if path != STANDARD and not _is_stream(path):
        model.save(path)
        return os.path.getsize(path)
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "model")
        model.save(name)
        with open(name, "rb") as file, writing(path) as stream:
            shutil.copyfileobj(file, stream)
        return os.path.getsize(name)
