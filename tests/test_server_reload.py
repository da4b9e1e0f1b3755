"""Models that are replaced under load: every request is answered, and soon by the new model alone.

``BONSAI_RELOADS=100 BONSAI_CLIENTS=120`` make the short run a long one; ``-s`` shows its figures.
"""

import asyncio
import bisect
import http.client
import json
import os
import re
import signal
import socket
import threading
import time
from datetime import datetime

import numpy as np
import pytest

pytest.importorskip("uvicorn", reason="needs the extra serve")

from bonsai_xmc import Bonsai, TextBonsai
from test_server import Server

RELOADS = int(os.environ.get("BONSAI_RELOADS", 3))
CLIENTS = int(os.environ.get("BONSAI_CLIENTS", 24))
PAUSES = (0.05, 0.1, 0.2, 0.4)  # seconds between an answer and the next request of a client
TEXTS = ["old brick houses", "heat pumps", "timber frames"]
BODY = json.dumps({"text": "brick", "k": 1}).encode()
REQUEST = b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY


class Replaced:
    """A server whose model is replaced; the labels of each model contain its number."""

    def __init__(self, folder, *options):
        self._folder = folder
        self._model = TextBonsai(min_df=1, classifier=Bonsai(n_jobs=1, threshold=0.5))
        self._model.fit(TEXTS, [["bricks"], ["heating"], ["timber"]])
        self.number = 0
        self._write()
        self.server = Server(folder / "model.bonsai", *options)

    def _write(self):
        names = {label: f"{label} {self.number}" for label in self._model.classes_.tolist()}
        self._model.rename(names).save(self._folder / "next")
        os.replace(self._folder / "next", self._folder / "model.bonsai")

    def replace(self, event="reloaded", seconds=30):
        """Write the next model, and return the time of the event in the log, in seconds since 1970."""
        self.number += 1
        self._write()
        return datetime.fromisoformat(self.server.until(event, seconds)["time"]).timestamp()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)


@pytest.fixture(scope="module")
def replaced(tmp_path_factory):
    replaced = Replaced(tmp_path_factory.mktemp("reload"), "--workers", 2)
    yield replaced
    assert replaced.server.stop() == 0


def number_of(body):
    """Return the number of the model that has answered."""
    return int(json.loads(body)["results"][0][0]["label"].split()[1])


def asked(connection):
    """Return the number of the model that answers, and whether the connection is closed after that."""
    connection.request("POST", "/predict", BODY)
    response = connection.getresponse()
    return number_of(response.read()), response.getheader("connection") == "close"


class Load:
    """Clients that send one request after another, each on one connection until the server ends it."""

    def __init__(self, port, n_clients):
        self._port, self._n_clients = port, n_clients
        self._stop = threading.Event()
        self.answers, self.unanswered = [], []  # (sent, received, number of the model), and when it was sent
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    async def _run(self):
        await asyncio.gather(*(self._client(PAUSES[i % len(PAUSES)]) for i in range(self._n_clients)))

    async def _client(self, pause):
        writer = None
        while not self._stop.is_set():
            if writer is None:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            sent = time.time()
            try:
                writer.write(REQUEST)
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                body = await reader.readexactly(int(re.search(rb"content-length: (\d+)", head)[1]))
            except (OSError, asyncio.IncompleteReadError):
                self.unanswered.append(sent)
                body = None
            if body is not None:
                assert head.startswith(b"http/1.1 200 ")
                self.answers.append((sent, time.time(), number_of(body)))
            if body is None or b"connection: close" in head:
                writer.close()
                writer = None
            await asyncio.sleep(pause)
        if writer is not None:
            writer.close()


def test_under_load_no_request_is_unanswered_and_no_answer_is_old(replaced):
    loaded, finished = [], []  # times
    with Load(replaced.server.port, CLIENTS) as load:
        time.sleep(0.5)
        for _ in range(RELOADS):
            loaded.append(replaced.replace("loaded"))
            record = replaced.server.until("reloaded")
            finished.append(datetime.fromisoformat(record["time"]).timestamp())
            time.sleep(1.4)
    waits = np.sort([received - sent for sent, received, _ in load.answers])
    leaving = np.subtract(finished, loaded)
    old = [(sent, received, i) for sent, received, i in load.answers if i < bisect.bisect(loaded, received)]
    since_loaded = [received - loaded[i] for _, received, i in old]
    since_finished = [received - finished[i] for _, received, i in old]
    sent_late = sum(sent > finished[i] for sent, _, i in old)
    print(
        f"\n{RELOADS} reloads, {CLIENTS} clients, {len(load.unanswered)} requests unanswered, {len(waits):,} "
        f"answered after {np.median(waits):.3f} s (median) to {waits[-1]:.2f} s"
        f"\nold workers left within {np.median(leaving):.2f} s (median) to {leaving.max():.2f} s"
        f"\nanswers of an old model after the new one was loaded: {len(old):,}, later than 1 s: "
        f"{sum(np.greater(since_loaded, 1))}, the last: {max(since_loaded, default=0):.2f} s"
        f"\nafter the end of the reload: {sum(np.greater(since_finished, 0))}, the last: "
        f"{max(since_finished, default=0):.2f} s; to requests sent after it: {sent_late}"
    )
    assert {number for _, _, number in load.answers} == set(range(RELOADS + 1))
    assert sum(sent > finished[0] for sent, _, _ in load.answers) > CLIENTS  # old answers would be seen
    assert not load.unanswered
    assert not sent_late and max(since_finished, default=0) < 1
    assert leaving.max() < 10


def test_a_connection_that_waits_is_answered_by_the_new_model(replaced):
    connections = [replaced.connect() for _ in range(40)]
    for _ in range(3):
        assert all(asked(connection) == (replaced.number, False) for connection in connections)
        replaced.replace()
    for connection in connections:
        connection.close()


def test_a_request_in_progress_is_answered_and_its_connection_closed(replaced):
    with socket.create_connection(("127.0.0.1", replaced.server.port), timeout=30) as client:
        client.sendall(REQUEST[:-3])
        time.sleep(0.3)
        replaced.replace("loaded")
        time.sleep(1.5)
        client.sendall(REQUEST[-3:])
        answer = b""
        while part := client.recv(4096):
            answer += part
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"connection: close" in head.lower() and number_of(body) == replaced.number - 1
    replaced.server.until("reloaded")


def test_clients_that_begin_a_request_do_not_hold_up_the_next_model(replaced):
    """Their connections are closed after a second."""
    clients = [socket.create_connection(("127.0.0.1", replaced.server.port), timeout=30) for _ in range(3)]
    for client in clients:
        client.sendall(b"POST /predict HTTP/1.1\r\nHost")
    time.sleep(0.3)
    begin = time.monotonic()
    replaced.replace()
    replaced.replace()
    assert time.monotonic() - begin < 10
    for client in clients:
        assert client.recv(1) == b""
        client.close()


def test_the_end_of_the_server_answers_requests_on_open_connections(tmp_path):
    replaced = Replaced(tmp_path)
    connection = replaced.connect()
    assert asked(connection) == (0, False)
    replaced.server.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert asked(connection) == (0, True)
    assert replaced.server.process.wait(10) == 0
