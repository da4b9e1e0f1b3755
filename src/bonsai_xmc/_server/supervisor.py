"""Processes: a parent that loads the models into sealed memory, and forked workers that share them.

The parent watches the model files. When one has been replaced, it loads all models again. If that succeeds,
it forks new workers and, once these are ready, tells the old ones to end (`worker.py`); otherwise the old
ones stay.
"""

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any

from bonsai_xmc import __version__
from bonsai_xmc._base.threads import threads_of
from bonsai_xmc._server.app import make_app
from bonsai_xmc._server.counters import Counters
from bonsai_xmc._server.guard import Rates
from bonsai_xmc._server.log import LOG, log, log_to_stderr
from bonsai_xmc._server.served import Served, load_all, signature
from bonsai_xmc._server.settings import Settings
from bonsai_xmc._server.worker import SUCCEEDED, Handover, Worker

_GRACE_SECONDS = 30.0
_RESTART_SECONDS = 1.0  # minimum time between restarts of a worker


@dataclass
class _Worker:
    pid: int
    slot: int
    started: float


class Supervisor:
    def __init__(self, paths: list[str], settings: Settings) -> None:
        self._paths, self._settings = paths, settings
        self._n_jobs = settings.n_jobs or max(1, threads_of(None) // settings.workers)
        self._models: dict[str, Served] = load_all(paths, self._n_jobs)
        # twice as many, as old and new workers coexist during a reload
        self._counters = Counters(1 + 2 * settings.workers)
        self._rates = Rates(settings.rate)
        self._workers: list[_Worker] = []
        self._leaving: list[_Worker] = []
        self._tried: list[Any] = [m.signature for m in self._models.values()]
        self._looked = self._replaced = time.monotonic()
        self._stop = self._reload = False
        self._socket = _bind(settings.host, settings.port)
        self._handover = Handover()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._socket.getsockname()[:2]
        return host, port

    def run(self) -> int:
        """Serve until a signal arrives."""
        log_to_stderr()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_reload)
        host, port = self.address
        if self._settings.api_key is None and not ipaddress.ip_address(host).is_loopback:
            advice = "everyone who reaches this address may use the models: set --api-key-file"
            log("no API key", logging.WARNING, host=host, advice=advice)
        try:
            self._workers = self._start(self._free_slots())
            about: dict[str, Any] = {"url": f"http://{host}:{port}/", "models": list(self._models)}
            log("serving", **about, workers=len(self._workers), threads=self._n_jobs, version=__version__)
            while not self._stop:
                self._collect()
                self._look()
                time.sleep(0.05)
        finally:
            self._finish()
        return 0

    def _on_stop(self, number: int, _: Any) -> None:
        self._stop = True
        log("stopping", signal=signal.Signals(number).name)

    def _on_reload(self, *_: Any) -> None:
        self._reload = True

    # --- workers ---

    def _free_slots(self) -> list[int]:
        used = {worker.slot for worker in (*self._workers, *self._leaving)}
        free = [slot for slot in range(1, 1 + 2 * self._settings.workers) if slot not in used]
        return free[: self._settings.workers]

    def _start(self, slots: list[int]) -> list[_Worker]:
        """Fork a worker for each slot, and wait until they accept requests."""
        started = []
        for slot in slots:
            reader, writer = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(reader)
                self._work(slot, writer)
            os.close(writer)
            started.append((_Worker(pid, slot, time.monotonic()), reader))
        for worker, reader in started:
            with os.fdopen(reader, "rb") as pipe:
                if not pipe.read(1):  # end of file: the worker has died
                    log("worker failed to start", logging.ERROR, worker=worker.pid)
        return [worker for worker, _ in started]

    def _work(self, slot: int, ready: int) -> None:
        code = 1
        try:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL if number != signal.SIGHUP else signal.SIG_IGN)
            self._counters.use(slot)
            app = make_app(self._models, self._settings, self._counters, self._rates)
            worker = Worker(app, self._settings, self._socket, self._handover)
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(worker.run_until_left(ready))
            code = 0
        except BaseException:
            LOG.exception("worker failed")
        finally:
            sys.stderr.flush()
            os._exit(code)  # the code of the parent must not run in a worker

    def _collect(self) -> None:
        """Collect workers that have ended, and replace those that ended unexpectedly."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if any(worker.pid == pid for worker in self._leaving):
                self._left(pid)
            for i, worker in enumerate(self._workers):
                if worker.pid == pid and not self._stop:
                    log("worker ended", logging.ERROR, worker=pid, status=status)
                    time.sleep(max(0.0, worker.started + _RESTART_SECONDS - time.monotonic()))
                    del self._workers[i]
                    self._workers += self._start([worker.slot])
                    break

    def _left(self, pid: int) -> None:
        """Note that an old worker has ended; the last one completes the reload."""
        self._leaving = [worker for worker in self._leaving if worker.pid != pid]
        if not self._leaving:
            log("reloaded", models=list(self._models), seconds=round(time.monotonic() - self._replaced, 3))

    # --- files ---

    def _look(self) -> None:
        settings = self._settings
        due = settings.watch > 0 and time.monotonic() - self._looked >= settings.watch
        if not (due or self._reload) or self._leaving:
            return
        self._looked = time.monotonic()
        try:
            found: list[Any] = [signature(path) for path in self._paths]
        except OSError:
            return  # the file is being replaced; the next check finds it
        if found == self._tried and not self._reload:
            return
        self._reload, self._tried = False, found
        self._replace()

    def _replace(self) -> None:
        begin = time.monotonic()
        try:
            models = load_all(self._paths, self._n_jobs)
        except (OSError, ValueError, MemoryError) as error:
            self._counters.reloaded(False)
            log("new model refused", logging.ERROR, error=str(error))
            return
        self._models = models
        self._tried = [model.signature for model in models.values()]
        old, self._leaving = self._workers, self._workers
        self._workers = self._start(self._free_slots())
        for worker in old:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, SUCCEEDED)
        self._counters.reloaded(True)
        self._replaced = time.monotonic()
        log("loaded", models=list(models), seconds=round(self._replaced - begin, 3))

    def _finish(self) -> None:
        self._stop = True
        self._socket.close()
        workers = [*self._workers, *self._leaving]
        for number, seconds in ((signal.SIGTERM, _GRACE_SECONDS), (signal.SIGKILL, 5.0)):
            for worker in workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, number)
            end = time.monotonic() + seconds
            while workers and time.monotonic() < end:
                workers = [worker for worker in workers if not _ended(worker.pid)]
                time.sleep(0.02)
        log("stopped")


def _loop_factory() -> Any:
    """Return the event loop of uvloop if it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Inherited by connections. Otherwise an answer in two parts waits for a delayed acknowledgement.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise ValueError(f"cannot listen on {host}, port {port}: {error.strerror}") from error
    sock.listen(2048)
    sock.setblocking(False)  # several workers accept
    return sock
