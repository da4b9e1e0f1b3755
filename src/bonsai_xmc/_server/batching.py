"""Batches: requests that arrive together are predicted together."""

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from bonsai_xmc._server.counters import Counters
from bonsai_xmc._server.served import Array, Ranking, Served
from bonsai_xmc._server.settings import Settings


class Overloaded(Exception):
    """Raised if too many calls wait; the client may try again."""


@dataclass
class _Waiting:
    texts: list[Any]
    k: int
    allowed: Array | None  # labels
    answer: "asyncio.Future[Ranking]"

    def __post_init__(self) -> None:
        # requests of one kind can be predicted together
        self.kind = None if self.allowed is None else np.packbits(self.allowed).tobytes()


class Batcher:
    """A thread that predicts with one model, one batch at a time.

    Requests that arrive during a batch form the next one. An idle batcher starts at once if no other request
    is in progress; otherwise it waits a moment for the others.
    """

    def __init__(self, served: Served, settings: Settings, counters: Counters) -> None:
        self.served = served
        self._settings, self._counters = settings, counters
        self._queue: deque[_Waiting] = deque()
        self._pending = 0  # texts in the queue
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"predict-{served.name}")

    async def rank(self, texts: list[Any], k: int, others: int, allowed: Array | None = None) -> Ranking:
        """Return the `k` best labels of each text; `others` counts the other requests in progress."""
        if not texts or k < 1:
            return np.empty((len(texts), 0), np.int32), np.empty((len(texts), 0), np.float32)
        if self._pending and self._pending + len(texts) > self._settings.max_pending:
            raise Overloaded
        item = _Waiting(texts, k, allowed, asyncio.get_running_loop().create_future())
        self._queue.append(item)
        self._pending += len(texts)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(wait=others > 0))
        return await item.answer

    async def _run(self, wait: bool) -> None:
        if wait and self._settings.batch_wait > 0:
            await asyncio.sleep(self._settings.batch_wait)
        while self._queue:
            batch = self._next()
            if batch:
                await self._predict(batch)

    def _next(self) -> list[_Waiting]:
        """Return the oldest request, and those of its kind."""
        batch: list[_Waiting] = []
        others: deque[_Waiting] = deque()
        size = 0
        while self._queue and (not batch or size + len(self._queue[0].texts) <= self._settings.max_batch):
            item = self._queue.popleft()
            if batch and item.kind != batch[0].kind:
                others.append(item)
                continue
            self._pending -= len(item.texts)
            if not item.answer.done():  # the client may have disconnected
                batch.append(item)
                size += len(item.texts)
        self._queue.extendleft(reversed(others))
        return batch

    async def _predict(self, batch: list[_Waiting]) -> None:
        texts = [text for item in batch for text in item.texts]
        k = max(item.k for item in batch)
        self._counters.batch(len(texts))
        try:
            loop = asyncio.get_running_loop()
            ids, scores = await loop.run_in_executor(
                self._thread, self.served.rank, texts, k, batch[0].allowed
            )
        except Exception as error:
            await self._failed(batch, error)
            return
        begin = 0
        for item in batch:
            end = begin + len(item.texts)
            if not item.answer.done():
                item.answer.set_result((ids[begin:end, : item.k], scores[begin:end, : item.k]))
            begin = end

    async def _failed(self, batch: list[_Waiting], error: Exception) -> None:
        """Predict the requests of a failed batch one by one, so that only a faulty one fails."""
        if len(batch) > 1:
            for item in batch:
                await self._predict([item])
        elif not batch[0].answer.done():
            batch[0].answer.set_exception(error)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
