"""A worker process, which serves connections until it is told to end.

Connections come from the listening socket, which all workers share, and from workers that end. Those hand
over connections that wait for a request through a shared pair of sockets: closing them could drop a request
in transit, and keeping them would answer it by the old model.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from typing import Any

import uvicorn

from bonsai_xmc._server.connections import Connection
from bonsai_xmc._server.log import log
from bonsai_xmc._server.settings import Settings

SUCCEEDED = signal.SIGUSR1  # end, as other workers have taken over; after SIGTERM there are none
_LAST_SECONDS = 1.0  # for the last request of a connection that cannot be handed over
_GRACE_SECONDS = 30.0  # for requests in progress
_LOOK_SECONDS = 0.02
_RETRY_SECONDS = 1.0  # after connections could not be accepted


class Handover:
    """A channel for connections between workers, made by their parent."""

    def __init__(self) -> None:
        self.giver, self.taker = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.giver.setblocking(False)
        self.taker.setblocking(False)

    def give(self, transport: Any) -> bool:
        """Hand over a connection; False if too many wait to be taken."""
        try:
            socket.send_fds(self.giver, [b"c"], [transport.get_extra_info("socket").fileno()])
        except OSError:
            return False
        return True

    def take(self) -> list[socket.socket]:
        with contextlib.suppress(BlockingIOError, InterruptedError):  # another worker was faster
            return [socket.socket(fileno=file) for file in socket.recv_fds(self.taker, 1, 1)[1]]
        return []


class Worker(uvicorn.Server):
    def __init__(self, app: Any, settings: Settings, listener: socket.socket, handover: Handover) -> None:
        self._protocol = Connection.with_limit(settings.timeout)
        config = uvicorn.Config(
            app,
            http=self._protocol,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_keep_alive=30,
        )
        super().__init__(config)
        self._listener, self._handover = listener, handover
        self._succeeded = False
        self._arriving: set[asyncio.Task[Any]] = set()  # connections that are accepted, but not set up

    async def run_until_left(self, ready: int) -> None:
        """Write a byte to the pipe `ready`, and serve until a signal arrives or the parent has ended."""
        parent = os.getppid()

        async def watch() -> None:
            while not self.started:
                await asyncio.sleep(0.01)
            os.write(ready, b"1")
            os.close(ready)
            while os.getppid() == parent:
                await asyncio.sleep(1.0)
            self.should_exit = True

        watcher = asyncio.create_task(watch())
        await self.serve()
        watcher.cancel()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets=[])
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(SUCCEEDED, self._on_succeeded)
        loop.add_reader(self._handover.taker, self._take)
        self._listen()

    def _on_succeeded(self) -> None:
        self._succeeded = self.should_exit = True
        self._leave(wait=True)  # at once; `shutdown` goes on with it

    # --- new connections ---

    def _listen(self) -> None:
        if not self._protocol.leaving:
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            self._begin(self._listener.accept()[0])
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            pass  # another worker was faster, or the client disconnected
        except OSError as error:  # such as too many open files
            log("connections are not accepted", logging.ERROR, error=str(error))
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._listener)
            loop.call_later(_RETRY_SECONDS, self._listen)

    def _take(self) -> None:
        for client in self._handover.take():
            self._begin(client)

    def _begin(self, client: socket.socket) -> None:
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        task = loop.create_task(loop.connect_accepted_socket(self._make, client))
        self._arriving.add(task)
        task.add_done_callback(self._arriving.discard)

    def _make(self) -> Connection:
        return self._protocol(self.config, self.server_state, self.lifespan.state)

    # --- the end ---

    async def shutdown(self, sockets: Any = None) -> None:
        """Answer open requests, and end all connections."""
        state, begin, seconds = self.server_state, time.monotonic(), 0.0
        self._leave(wait=True)
        while (state.connections or state.tasks or self._arriving) and seconds < _GRACE_SECONDS:
            await asyncio.sleep(_LOOK_SECONDS)
            seconds = time.monotonic() - begin
            self._leave(wait=seconds < _LAST_SECONDS)

    def _leave(self, wait: bool) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listener)
        loop.remove_reader(self._handover.taker)
        self._protocol.leaving = True
        for connection in list(self.server_state.connections):
            assert isinstance(connection, Connection)
            connection.leave(self._handover.give if self._succeeded else None, wait)
