"""Encoders: what turns a text into a vector, given by a name, a folder or a function.

A model file keeps the identity of an encoder, not its weights: these are loaded from their own files when the
first text is encoded, and must be the same. Only sentence-transformers may download weights, those of a name.
"""

import hashlib
import importlib.util
import json
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

Array = npt.NDArray[Any]
Encode = Callable[[list[str], int], Array]  # texts and a number of threads → (texts, dimension)

TRANSFORMER, STATIC, FUNCTION = KINDS = ("sentence-transformers", "static", "function")
WORDLLAMA = "wordllama"  # the package that contains its weights
# A function has no weights to compare: sums over the vector of this text identify it.
_PROBE, _N_PROBED, _TOLERANCE = "Heat pumps in old brick houses", 4, 0.02
_BATCH = 32  # texts that a transformer encodes at a time
_MAX_HEADER = 1 << 24
_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I8": "|i1"}


class EncoderError(ValueError):
    """The error of an encoder that is missing, or is not the one that a model was trained with."""


@dataclass(frozen=True)
class Identity:
    """The properties by which encoders are compared; a model file keeps them."""

    kind: str  # one of KINDS
    name: str  # as it was given; of a function, its name
    dimension: int
    max_tokens: int | None  # the rest of a text is not read; None: no limit, or unknown
    normalized: bool  # whether vectors have length 1
    checksum: str  # of the weights; "" for a function
    probe: tuple[float, ...] = ()  # of a function: sums over the vector of a certain text

    def to_json(self) -> dict[str, Any]:
        """Return it as a model file holds it."""
        return asdict(self) | {"probe": list(self.probe)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Identity":
        """Return the identity of a file, whose types are checked already."""
        known = {one.name: value[one.name] for one in fields(cls)}
        return cls(**known | {"probe": tuple(map(float, known["probe"]))})

    def difference(self, other: "Identity") -> str | None:
        """Return how another encoder differs from this one, apart from the name; None if it does not."""
        for name in ("kind", "dimension", "max_tokens", "normalized", "checksum"):
            own, others = getattr(self, name), getattr(other, name)
            if own != others:
                return f"its {name.replace('_', ' ')} is {others!r} instead of {own!r}"
        if not np.allclose(self.probe, other.probe, rtol=_TOLERANCE, atol=_TOLERANCE / 10):
            return "it gives another vector for the same text"
        return None


@dataclass(frozen=True, eq=False)
class Encoder:
    """An encoder, whose weights are loaded when they are needed; immutable."""

    identity: Identity
    _given: Any = None  # a function, or where to find the encoder if that is not the name

    @property
    def given(self) -> Any:
        """The name, folder or function that was passed; None for the function of a model from a file."""
        of_file = None if self.identity.kind == FUNCTION else self.identity.name
        return of_file if self._given is None else self._given

    @classmethod
    def of(cls, given: Any) -> "Encoder":
        """Return the encoder of a name, a folder or a function; EncoderError if there is none."""
        if isinstance(given, Encoder):
            return given
        return cls(_loaded(given)[0], given)

    def at(self, given: Any) -> "Encoder":
        """Return this encoder with weights from another place; EncoderError if those differ."""
        self._check(_loaded(given)[0])
        return Encoder(self.identity, given)

    def load(self) -> None:
        """Load the weights now, not with the first text; EncoderError if they are not the same."""
        assert self._encode is not None

    def encode(self, texts: Sequence[str | None], threads: int = 1) -> Array:
        """Return vectors of float32; zeros for a text without visible characters."""
        vectors = np.zeros((len(texts), self.identity.dimension), np.float32)
        there = [i for i, text in enumerate(texts) if text and not text.isspace()]
        if there:
            vectors[there] = _checked(self._encode([str(texts[i]) for i in there], threads), len(there))
        return vectors

    @cached_property
    def _encode(self) -> Encode:
        if self.given is None:
            raise EncoderError(
                f"this model was trained with the function {self.identity.name!r} as its encoder, which a "
                "file cannot hold; give it again: bonsai_xmc.load(path, encoder=function)"
            )
        found, encode = _loaded(self.given)
        self._check(found)
        return encode

    def _check(self, found: Identity) -> None:
        difference = self.identity.difference(found)
        if difference is not None:
            raise EncoderError(
                f"the encoder {found.name!r} is not {self.identity.name!r}, which this model was trained "
                f"with: {difference}. Give the same one: bonsai_xmc.load(path, encoder=…)"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {"identity": self.identity, "_given": self._given}  # weights are loaded again


def _checked(vectors: Any, n_texts: int, dimension: int | None = None) -> Array:
    """Return the result of an encoder; EncoderError unless it has a vector for each text."""
    found = np.asarray(vectors)
    if found.ndim != 2 or len(found) != n_texts or found.dtype.kind not in "fiu":
        raise EncoderError(
            f"the encoder returned an array of shape {found.shape} and type {found.dtype} for {n_texts:,} "
            "texts; it must return numbers, a row for each text"
        )
    if found.shape[1] == 0 or dimension not in (None, found.shape[1]):
        raise EncoderError(f"the encoder returned vectors of {found.shape[1]} numbers, not {dimension or 1}")
    found = found.astype(np.float32)
    if not np.isfinite(found).all():
        raise EncoderError("the encoder returned NaN or infinite numbers")
    return found


# --- by name, folder or function ---


def _loaded(given: Any) -> tuple[Identity, Encode]:
    if callable(given):
        return _of_function(given)
    if not isinstance(given, str | os.PathLike) or not os.fspath(given):
        raise TypeError(
            f"encoder is {given!r:.60}, but must be a folder, a name, or a function of a list of texts"
        )
    return _of_name(os.fspath(given))


@cache
def _of_name(name: str) -> tuple[Identity, Encode]:
    """Return the encoder of a name or a folder; its weights are loaded once in a process."""
    folder = Path(name)
    if name == WORDLLAMA and not folder.exists():
        return _wordllama()
    if _is_static(folder):
        return _model2vec(folder)
    if (os.sep in name and name.startswith((os.sep, "."))) and not folder.is_dir():
        raise EncoderError(f"encoder {name!r}: there is no such folder")
    return _transformer(name)


def _of_function(function: Any) -> tuple[Identity, Encode]:
    vector = _checked(function([_PROBE]), 1)[0]
    waves = np.cos(np.outer(np.arange(1, _N_PROBED + 1), np.arange(len(vector))))
    name = f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', repr(function))}"
    identity = Identity(
        FUNCTION,
        name,
        len(vector),
        None,
        _has_length_1(vector),
        "",
        tuple(round(float(value), 6) for value in waves @ vector),
    )
    return identity, lambda texts, threads: _checked(function(texts), len(texts), len(vector))


def _has_length_1(vector: Array) -> bool:
    return bool(abs(float(np.linalg.norm(vector)) - 1) < 1e-3)


def _missing(name: str, package: str, extra: str) -> EncoderError:
    return EncoderError(
        f"encoder {name!r} needs the package {package}, which is not installed: "
        f"pip install 'bonsai-xmc[{extra}]'"
    )


# --- sentence-transformers ---


def _transformer(name: str) -> tuple[Identity, Encode]:
    if importlib.util.find_spec("sentence_transformers") is None:
        raise _missing(name, "sentence-transformers", "encoder")
    import torch
    from sentence_transformers import SentenceTransformer

    try:
        model = SentenceTransformer(name)  # on a GPU if there is one
    except (OSError, ValueError) as error:
        first = str(error).strip().partition("\n")[0]
        raise EncoderError(f"encoder {name!r}: sentence-transformers cannot load it: {first}") from error
    state = hashlib.blake2b(digest_size=16)
    for key, tensor in sorted(model.state_dict().items()):
        state.update(key.encode())
        state.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    tokens = model.max_seq_length
    normalized = any(type(part).__name__ == "Normalize" for part in model)

    def encode(texts: list[str], threads: int) -> Array:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            found: Array = model.encode(texts, batch_size=_BATCH, show_progress_bar=False)
        finally:
            torch.set_num_threads(before)
        return found

    dimension = encode([_PROBE], 1).shape[1]
    max_tokens = None if tokens is None else int(tokens)
    return Identity(TRANSFORMER, name, dimension, max_tokens, normalized, state.hexdigest()), encode


# --- static models: a vector for each token, and their mean for a text ---


@dataclass(frozen=True, eq=False)
class _Table:
    """The vectors of tokens, and how a text becomes tokens."""

    tokenizer: Any
    vectors: Array  # float32, (tokens, dimension)
    unknown: int | None  # a token that does not count
    max_characters: int | None
    normalized: bool
    checksum: str = field(default="")

    def encode(self, texts: list[str], threads: int) -> Array:
        cut = [text[: self.max_characters] for text in texts]
        ids = [
            np.array(one.ids, np.int64) for one in self.tokenizer.encode_batch(cut, add_special_tokens=False)
        ]
        if self.unknown is not None:
            ids = [one[one != self.unknown] for one in ids]
        sizes = np.array([len(one) for one in ids])
        shares = np.repeat(1 / np.maximum(sizes, 1), sizes).astype(np.float32)
        ends = np.concatenate([[0], np.cumsum(sizes)])
        places = np.minimum(np.concatenate(ids), len(self.vectors) - 1)
        means = sp.csr_array((shares, places, ends), shape=(len(texts), len(self.vectors))) @ self.vectors
        if self.normalized:
            means /= np.linalg.norm(means, axis=1, keepdims=True) + 1e-32
        return np.asarray(means, np.float32)


def _static(name: str, table: _Table, max_tokens: int | None) -> tuple[Identity, Encode]:
    dimension = table.vectors.shape[1]
    identity = Identity(STATIC, name, dimension, max_tokens, table.normalized, table.checksum)
    return identity, table.encode


def _wordllama() -> tuple[Identity, Encode]:
    spec = importlib.util.find_spec(WORDLLAMA)
    if spec is None or not spec.submodule_search_locations:
        raise _missing(WORDLLAMA, WORDLLAMA, "encoder-static")
    folder = Path(spec.submodule_search_locations[0])
    weights = folder / "weights" / "l2_supercat_256.safetensors"
    words = folder / "tokenizers" / "l2_supercat_tokenizer_config.json"
    tokenizer = _tokenizer(WORDLLAMA, words)
    tokenizer.no_truncation()
    vectors = _tensors(weights)["embedding.weight"].astype(np.float32)
    return _static(WORDLLAMA, _Table(tokenizer, vectors, None, None, False, _checksum(weights, words)), None)


def _is_static(folder: Path) -> bool:
    """Return whether a folder has the format of model2vec."""
    weights = folder / "model.safetensors"
    return (folder / "tokenizer.json").is_file() and weights.is_file() and "embeddings" in _header(weights)[0]


def _model2vec(folder: Path) -> tuple[Identity, Encode]:
    name, weights, words = str(folder), folder / "model.safetensors", folder / "tokenizer.json"
    tokenizer = _tokenizer(name, words)
    tensors, config = _tensors(weights), {}
    if (folder / "config.json").is_file():
        config = json.loads((folder / "config.json").read_bytes())
    vectors = tensors["embeddings"].astype(np.float32)
    if "mapping" in tensors:
        vectors = vectors[tensors["mapping"]]
    if "weights" in tensors:
        vectors = vectors * tensors["weights"].astype(np.float32)[:, None]
    tokens = config.get("max_length", 512)
    characters = None
    if tokens is not None:
        lengths = [len(token) for token in tokenizer.get_vocab()]
        characters = tokens * int(np.median(lengths))
        tokenizer.enable_truncation(tokens)
    described = json.loads(tokenizer.to_str())["model"]
    unknown = described.get("unk_id")
    if described.get("unk_token") is not None:
        unknown = tokenizer.token_to_id(described["unk_token"])
    normalized = bool(config.get("normalize", False))
    table = _Table(tokenizer, vectors, unknown, characters, normalized, _checksum(weights, words))
    return _static(name, table, tokens)


def _tokenizer(name: str, path: Path) -> Any:
    if importlib.util.find_spec("tokenizers") is None:
        raise _missing(name, "tokenizers", "encoder-static")
    from tokenizers import Tokenizer

    if not path.is_file():
        raise EncoderError(f"encoder {name!r}: the file {path} is missing")
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    return tokenizer


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """Return the tensors of a safetensors file by name, and the place where their data begin."""
    try:
        with open(path, "rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            if size > _MAX_HEADER:
                raise ValueError("its header is too long")
            return json.loads(file.read(size)), 8 + size
    except (OSError, ValueError, struct.error) as error:
        raise EncoderError(f"{path} is not a safetensors file: {error}") from error


def _tensors(path: Path) -> dict[str, Array]:
    header, begin = _header(path)
    data = path.read_bytes()
    tensors = {}
    for name, one in header.items():
        if name == "__metadata__":
            continue
        if one["dtype"] not in _DTYPES:
            raise EncoderError(
                f"{path}: the tensor {name!r} is of type {one['dtype']}, which is not supported"
            )
        start, end = (begin + place for place in one["data_offsets"])
        tensors[name] = np.frombuffer(data[start:end], _DTYPES[one["dtype"]]).reshape(one["shape"])
    return tensors


def _checksum(*paths: Path) -> str:
    state = hashlib.blake2b(digest_size=16)
    for path in paths:
        state.update(path.read_bytes())
    return state.hexdigest()
