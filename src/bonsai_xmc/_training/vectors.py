"""Vectors of training texts, in parts that a checkpoint keeps."""

import contextlib
import hashlib
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.progress import Phases
from bonsai_xmc._text.encoders import Encoder
from bonsai_xmc._training.checkpoint import Checkpoint
from bonsai_xmc._training.work import Save, Watch

PHASE = "vectors"
_PART = 1024  # texts


def encoded(
    encoder: Encoder,
    texts: Sequence[str | None],
    threads: int,
    phases: Phases,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Array:
    """Return the vectors of texts as a phase of training; those in the checkpoint are not computed again.

    Texts of similar length are in one part, so that a transformer has little to pad.
    """
    order = np.argsort([len(text or "") for text in texts], kind="stable")
    parts = np.split(order, np.arange(_PART, len(order), _PART))
    vectors = np.zeros((len(texts), encoder.identity.dimension), np.float32)
    missing = set(range(len(parts)))
    with contextlib.ExitStack() as stack:
        save: Save = None
        if checkpoint is not None:
            kept = stack.enter_context(Checkpoint(checkpoint, _facts(encoder, texts)))
            log = stack.enter_context(kept.stage(PHASE, len(parts)))
            for part, found in log.results():
                vectors[parts[part]] = np.frombuffer(found, np.float32).reshape(len(parts[part]), -1)
                missing.discard(part)
            save = log.save

        def encode(progress: Watch) -> None:
            for done, part in enumerate(sorted(missing), len(parts) - len(missing)):
                if progress is not None:
                    progress(done, len(parts))
                found = encoder.encode([texts[i] for i in parts[part]], threads)
                vectors[parts[part]] = found
                if save is not None:
                    save([(part, found.tobytes())])

        phases.run(PHASE, encode)
    return vectors


def _facts(encoder: Encoder, texts: Sequence[str | None]) -> dict[str, Any]:
    """Return what the vectors depend on."""
    state = hashlib.blake2b(digest_size=16)
    for text in texts:
        data = (text or "").encode("utf-8", "surrogatepass")
        state.update(len(data).to_bytes(8, "little") + data)
    return {"encoder": encoder.identity.to_json(), "texts": {"rows": len(texts), "digest": state.hexdigest()}}
