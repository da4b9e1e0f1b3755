"""``bonsai serve`` as a process, over HTTP."""

import contextlib
import http.client
import json
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse

import numpy as np
import pytest

from bonsai_xmc import TextBonsai, _cli, datasets
from helpers import text_bonsai

pytest.importorskip("uvicorn", reason="needs the extra serve")

from bonsai_xmc._server.routes import PAGE

BATCH = "/v1/projects/themes/suggest-batch"
HTML = '<img src=x onerror=alert(1)> & "quotes"'


def make_model(path, seed=0, **options):
    data = datasets.make_texts(400, n_test=60, random_state=seed)
    labels = [[*row, HTML] if i % 7 == 0 else row for i, row in enumerate(data.labels_train)]
    text_bonsai(min_df=1, n_jobs=1, threshold=0.5, **options).fit(data.texts_train, labels).save(path)
    return data


class Server:
    def __init__(self, *arguments, env=None, first="serving"):
        command = [sys.executable, "-m", "bonsai_xmc", "serve", "--port", "0", *map(str, arguments)]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        url = self.process.stdout.readline()
        if not url:
            raise RuntimeError(self.process.stderr.read())
        self.port = urllib.parse.urlsplit(url.strip()).port
        self.log, self.events = queue.Queue(), []
        threading.Thread(target=self._read, daemon=True).start()
        self.until(first)

    def _read(self):
        for line in self.process.stderr:
            self.log.put(json.loads(line))
            self.events.append(json.loads(line)["event"])

    def until(self, event, seconds=30):
        """Return the next record of the log with an event."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                record = self.log.get(timeout=left)
                if record["event"] == event:
                    return record
        raise AssertionError(f"no {event!r} in the log")

    def ask(self, method, path, body=None, headers=None):
        """Return status, headers and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def get(self, path, **headers):
        status, _, body = self.ask("GET", path, headers=headers)
        assert status == 200, body
        return json.loads(body)

    def post(self, path, value, status=200, **headers):
        found, _, body = self.ask(
            "POST", path, json.dumps(value), {"content-type": "application/json", **headers}
        )
        assert found == status, body
        return json.loads(body)

    def form(self, path, status=200, **fields):
        headers = {"content-type": "application/x-www-form-urlencoded"}
        found, _, body = self.ask("POST", path, urllib.parse.urlencode(fields), headers)
        assert found == status, body
        return json.loads(body)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve")
    data = make_model(folder / "themes.bonsai")
    return folder, data.texts_test


@pytest.fixture(scope="module")
def server(folder):
    server = Server(folder[0] / "themes.bonsai", "--workers", 2, "--max-body", 200_000, "--max-texts", 50)
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def model(folder):
    return TextBonsai.load(folder[0] / "themes.bonsai")


def expected(model, text, k):
    return [(label, pytest.approx(score)) for label, score in model.suggest(text, k)]


# --- answers ---


def labels_and_scores(rows):
    return [[(entry["label"], entry["score"]) for entry in row] for row in rows]


@pytest.mark.parametrize(
    "limits",
    [
        {"restrict": [0, 1]},
        {"exclude": [0, 1]},
        {"restrict": [0, 1], "exclude": [1]},
        {"restrict": [0], "exclude": [0]},
    ],
    ids=str,
)
def test_labels_are_restricted_and_excluded_as_in_python(server, folder, model, limits):
    texts, known = folder[1][:20], model.classes_.tolist()
    limits = {name: [*(known[i] for i in places), "unknown"] for name, places in limits.items()}
    found = server.post("/predict", {"texts": texts, "k": 4, **limits})["results"]
    assert labels_and_scores(found) == [
        [(label, pytest.approx(score)) for label, score in row if score > 0]
        for row in model.suggest(texts, 4, **limits)
    ]
    assert found != server.post("/predict", {"texts": texts, "k": 4})["results"]


def test_requests_with_other_labels_do_not_share_a_batch(server, folder, model):
    text, known = folder[1][0], model.classes_.tolist()
    best = [label for label, _ in model.suggest(text, len(known))]
    answers = {}

    def ask(i):
        limits = {"exclude": best[: i % 4]} if i % 4 else {}
        answers[i] = server.post("/predict", {"text": text, "k": 1, **limits})["results"]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answers[i][0][0]["label"] for i in range(40)] == [best[i % 4] for i in range(40)]


def test_thresholds_are_those_of_python(server, folder, model):
    texts = folder[1][:20]
    expected = [set(model.classes_[row.nonzero()[0]]) for row in model.predict(texts).toarray()]
    found = server.post("/predict", {"texts": texts, "k": 50, "threshold": "auto"})["results"]
    assert [{entry["label"] for entry in row} for row in found] == expected and any(expected)
    assert (
        server.post("/predict", {"texts": texts, "k": 50, "threshold": model.classifier_.threshold})[
            "results"
        ]
        == found
    )
    score = np.sort(model.top_k(texts, 1)[1][:, 0])[
        10
    ]  # as a float32 it is the same number, as a decimal not
    some = server.post("/predict", {"texts": texts, "k": 1, "threshold": float(f"{score:.8g}")})["results"]
    assert sum(map(len, some)) == 10


def test_predict_equals_the_model_for_any_batch(server, folder, model):
    texts = folder[1][:10]
    answer = server.post("/predict", {"texts": texts, "k": 3})
    assert answer["model"] == "themes"
    for text, row in zip(texts, answer["results"], strict=True):
        assert [(r["label"], r["score"]) for r in row] == expected(model, text, 3)
    one = server.post("/predict", {"text": texts[0], "threshold": 0.999999})
    assert one["results"] == [[]]
    assert server.post("/predict", {"texts": []})["results"] == []
    assert server.post("/predict", {"texts": texts, "k": 3.0}) == answer
    assert server.post("/predict", {"texts": ["…", ""]})["results"] == [[], []]


def test_models_and_labels_are_listed_and_searched(server, model):
    (entry,) = server.get("/models")["models"]
    assert entry["name"] == "themes" and entry["labels"] == len(model.classes_) and entry["fields"] == []
    assert (entry["kind"], entry["system"], entry["named"]) == ("bonsai", "Bonsai", False)
    assert entry["threshold"] == model.threshold_
    first = server.get("/labels?limit=3")
    assert first["total"] == len(model.classes_)
    assert [e["rows"] for e in first["labels"]] == sorted(model.label_counts_, reverse=True)[:3]
    found = server.get("/labels?q=onerror")
    assert [e["name"] for e in found["labels"]] == [HTML]


def test_health_and_readiness_are_answered(server):
    assert server.get("/health") == {"status": "ok"}
    assert server.get("/ready") == {"status": "ready", "models": ["themes"]}


def test_annifs_interface_answers_projects_and_suggestions(server, folder, model):
    text = folder[1][0]
    assert server.get("/v1/")["title"] == server.get("/v1")["title"] == "bonsai-xmc"
    (project,) = server.get("/v1/projects")["projects"]
    assert project == server.get("/v1/projects/themes")
    assert project["is_trained"] and project["backend"] == {"backend_id": "bonsai"}
    assert server.get("/v1/vocabs")["vocabs"] == [project["vocab"]]
    found = server.form("/v1/projects/themes/suggest", text=text, limit=4, metadata_title="ignored")
    assert [(r["uri"], r["score"]) for r in found["results"]] == expected(model, text, 4)
    assert set(found["results"][0]) == {"uri", "label", "notation", "score"}
    assert len(server.form("/v1/projects/themes/suggest", text=text)["results"]) <= 10
    assert server.form("/v1/projects/themes/suggest", text=text, limit=0)["results"] == []
    documents = [{"text": text, "document_id": "a"}, {"text": "…"}]
    batch = server.post("/v1/projects/themes/suggest-batch?limit=4", {"documents": documents})
    assert batch == [{"results": found["results"], "document_id": "a"}, {"results": [], "document_id": None}]
    assert server.post("/v1/projects/themes/learn", [], status=403)["status"] == 403


def test_pages_of_any_origin_may_use_annifs_interface(server):
    status, headers, _ = server.ask("OPTIONS", "/v1/projects/themes/suggest")
    assert status == 204 and headers["access-control-allow-origin"] == "*"
    assert server.ask("OPTIONS", "/v1")[0] == 204
    for path in ("/models", "/v1x", "/v10/projects"):
        assert "access-control-allow-origin" not in server.ask("GET", path)[1]


@pytest.mark.parametrize(
    ("method", "path", "body", "kind", "status", "detail"),
    [
        ("GET", "/nothing", None, None, 404, "/nothing"),
        ("GET", "/predict", None, None, 405, "/predict"),
        ("GET", "/v1/projects/none", None, None, 404, "Project 'none' not found"),
        ("GET", "/v1/nothing", None, None, 404, "/v1/nothing: Not Found"),
        ("POST", "/v1/projects/themes/nothing", "text=a", "form", 404, "Not Found"),
        ("POST", "/v1/projects", "text=a", "form", 405, "Method Not Allowed"),
        ("POST", "/v1/projects/none/suggest", "text=a", "form", 404, "Project 'none' not found"),
        ("POST", "/v1/projects/themes/suggest", "limit=3", "form", 400, "text"),
        ("POST", "/v1/projects/themes/suggest", "text=a&limit=-1", "form", 400, "limit is -1"),
        ("POST", "/v1/projects/themes/suggest", "text=a&limit=1_0", "form", 400, "limit is '1_0'"),
        ("POST", "/v1/projects/themes/suggest", "text=a&threshold=nan", "form", 400, "threshold is 'nan'"),
        ("POST", "/v1/projects/themes/suggest", "text=%ff", "form", 400, "not a form"),
        ("POST", "/v1/projects/themes/suggest", '{"text": "a"}', "json", 415, "x-www-form-urlencoded"),
        ("POST", BATCH, '{"documents": [1]}', "json", 400, "documents"),
        ("POST", BATCH, '{"documents": [{}]}', "json", 400, "documents[0].text"),
        ("POST", BATCH, json.dumps({"documents": 33 * [{"text": ""}]}), "json", 400, "33"),
        ("POST", "/predict", "{", "json", 400, "not JSON"),
        ("POST", "/predict", 100_000 * "[", "json", 400, "not JSON"),
        ("POST", "/predict", "[]", "json", 400, "object"),
        ("POST", "/predict", "{}", "json", 400, "the body needs either texts or text"),
        ("POST", "/predict", '{"texts": ["a"], "text": "a"}', "json", 400, "either texts"),
        ("POST", "/predict", '{"texts": null}', "json", 400, "texts must be a list of strings"),
        ("POST", "/predict", '{"texts": ["a"], "k": "5"}', "json", 400, "k is '5'"),
        ("POST", "/predict", '{"texts": [1]}', "json", 400, "texts[0] must be a string"),
        ("POST", "/predict", '{"texts": [{"title": "a"}]}', "json", 400, "texts[0] is an object"),
        ("POST", "/predict", '{"texts": ["\\ud800"]}', "json", 400, "not valid Unicode"),
        ("POST", "/predict", '{"texts": ["a"], "k": 0}', "json", 400, "k is 0"),
        ("POST", "/predict", '{"texts": ["a"], "k": true}', "json", 400, "k is True"),
        ("POST", "/predict", '{"texts": ["a"], "k": 1.5}', "json", 400, "k is 1.5"),
        ("POST", "/predict", '{"texts": ["a"], "k": 1e999}', "json", 400, "k is inf"),
        ("POST", "/predict", '{"texts": ["a"], "threshold": 2}', "json", 400, "threshold is 2"),
        ("POST", "/predict", '{"text": "a", "threshold": "Auto"}', "json", 400, "threshold is 'Auto'"),
        ("POST", "/predict", '{"text": "a", "restrct": []}', "json", 400, "did you mean 'restrict'?"),
        ("POST", "/predict", '{"text": "a", "q": 1, "z": 1}', "json", 400, "'q', 'z'; known are texts, text"),
        ("POST", "/predict?k=3", '{"text": "a"}', "json", 400, "the query has the unknown key 'k'"),
        ("POST", "/predict", '{"text": "a", "restrict": "b"}', "json", 400, "restrict must be a list"),
        ("POST", "/predict", '{"text": "a", "exclude": [1]}', "json", 400, "exclude[0] must be a string"),
        ("POST", "/predict", '{"text": "a", "restrict": []}', "json", 400, "restrict is empty"),
        ("POST", "/predict", '{"text": "a", "restrict": ["b", "c"]}', "json", 404, "none of the 2 labels"),
        ("POST", "/predict", '{"text": "a", "exclude": ["b"]}', "json", 404, "the model has no label 'b'"),
        ("POST", "/predict", '{"texts": ["a"], "model": "x"}', "json", 404, "no model 'x'; there are themes"),
        ("POST", "/predict", json.dumps({"texts": 51 * ["a"]}), "json", 400, "at most 50"),
        ("POST", "/predict", json.dumps({"texts": [300_000 * "a"]}), "json", 413, "at most 200,000 bytes"),
        ("POST", "/predict", "a=b", "form", 415, "application/json"),
        ("GET", "/labels?limit=many", None, None, 400, "limit is 'many'"),
        ("GET", "/labels?model=x", None, None, 404, "no model"),
        ("GET", "/labels?limits=3", None, None, 400, "key 'limits'; did you mean 'limit'"),
    ],
)  # fmt: skip
def test_errors_are_problem_details(server, method, path, body, kind, status, detail):
    kinds = {"form": "application/x-www-form-urlencoded", "json": "application/json"}
    found, headers, content = server.ask(method, path, body, {"content-type": kinds[kind]} if kind else {})
    assert found == status, content
    assert headers["content-type"].startswith("application/problem+json")
    problem = json.loads(content)
    assert problem["status"] == status and problem["title"]
    assert detail in problem["detail"]


def test_openapi_describes_all_paths(server):
    document = server.get("/openapi.json")
    assert document["openapi"].startswith("3.1")
    references = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(document)))
    assert references <= set(document["components"]["schemas"])
    for path, item in document["paths"].items():
        for method in item:
            status, _, _ = server.ask(method.upper(), path.replace("{project_id}", "themes"))
            # this model has no trees
            assert status not in ((405,) if path == "/tree" else (404, 405)), path


def test_the_description_has_the_keys_that_are_known(server):
    for path, item in server.get("/openapi.json")["paths"].items():
        schema = item.get("post", {}).get("requestBody", {}).get("content", {}).get("application/json", {})
        properties = schema.get("schema", {}).get("properties", {})
        if not path.startswith("/v1"):
            assert properties if "post" in item else True
            if properties:
                detail = server.post(path, {"unknown": 1}, 400)["detail"]
                assert detail.endswith("known are " + ", ".join(properties))
            names = [parameter["name"] for parameter in item.get("get", {}).get("parameters", ())]
            if names:
                detail = json.loads(server.ask("GET", f"{path}?unknown=1")[2])["detail"]
                assert detail.endswith("known are " + ", ".join(names))


def eventually(holds):
    """Wait until a condition holds: requests are counted just after their answers."""
    end = time.monotonic() + 5
    while not holds():
        assert time.monotonic() < end


def test_metrics_are_counted_over_all_workers(server, folder):
    def number(name):
        text = server.ask("GET", "/metrics")[2].decode()
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)
        return float(found[1]) if found else 0.0

    path = 'bonsai_requests_total{path="/predict",status="200"}'
    before, texts = number(path), number("bonsai_batch_texts_sum")
    for _ in range(4):
        server.post("/predict", {"texts": folder[1][:3]})
    eventually(lambda: number(path) == before + 4)  # counted by all workers together
    assert number("bonsai_batch_texts_sum") == texts + 12
    eventually(lambda: number("bonsai_requests_under_way") == 1)  # this one
    assert number('bonsai_request_seconds_bucket{le="+Inf"}') < number("bonsai_request_seconds_count")


def test_each_path_has_its_own_counters(server):
    document = server.get("/openapi.json")
    for path, item in document["paths"].items():
        for method in item:
            server.ask(method.upper(), path.replace("{project_id}", "themes"))

    def counted():
        return set(re.findall(r'path="([^"]*)"', server.ask("GET", "/metrics")[2].decode()))

    paths = {path.removesuffix("/") for path in document["paths"]}
    assert {"/explain", "/tree"} < paths
    eventually(lambda: counted() >= paths)


def test_the_log_names_client_and_model(server, folder):
    server.get("/v1/projects/themes")
    server.post("/predict", {"text": folder[1][0]})
    for path, method in (("/v1/projects/themes", "GET"), ("/predict", "POST")):
        while (record := server.until("request"))["path"] != path or record["status"] != 200:
            pass
        assert (record["method"], record["model"]) == (method, "themes")
        assert record["client"] == "127.0.0.1" and record["ms"] >= 0


def test_the_page_loads_nothing_from_elsewhere(server):
    pages = {path: server.ask("GET", path) for path in PAGE if path != "/icon.svg"}
    for status, headers, body in pages.values():
        assert status == 200
        assert "default-src 'none'" in headers["content-security-policy"]
        assert b"://" not in body and b"innerHTML" not in body
    html = pages["/"][2].decode()
    for reference in re.findall(r'(?:src|href)="([^"]+)"', html):
        assert server.ask("GET", f"/{reference}")[0] == 200
    for name in re.findall(r'<(?:input|textarea|select)[^>]* id="([\w-]+)"', html):  # all have a name
        assert f'for="{name}"' in html or re.search(rf'<label[^>]*>[^<]*<\w+ id="{name}"', html), name
    scripts = "".join(body.decode() for path, (_, _, body) in pages.items() if path.endswith(".js"))
    for name in re.findall(r'at\("([\w-]+)"\)', scripts):
        assert f'id="{name}"' in html


# --- faulty clients ---


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def open_files(server):
    return sum(len(os.listdir(f"/proc/{worker}/fd")) for worker in children(server.process.pid))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="sealed memory and /proc are Linux's")
def test_workers_share_the_model_in_sealed_memory(server):
    for worker in children(server.process.pid):
        with open(f"/proc/{worker}/maps") as file:
            found = [line for line in file if "memfd:" in line]
        assert found and all(" r--s " in line for line in found)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
def test_connections_that_end_leave_nothing_behind(server, folder):
    body = json.dumps({"texts": folder[1][:5]}).encode()
    request = b"POST /predict HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    before = open_files(server)
    for i in range(60):
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as client:
            client.sendall(request[: len(request) - (i % 3 == 1)])
            if i % 3 == 2:
                client.recv(1)
    end = time.monotonic() + 10
    while open_files(server) > before and time.monotonic() < end:
        server.get("/health")
    assert open_files(server) <= before


def test_clients_that_disconnect_or_send_garbage(server, folder):
    for data in (
        b"POST /predict HTTP/1.1\r\nhost: a\r\ncontent-length: 500\r\n\r\n{",
        b"GET / HTTP/1.1\r\n",
        b"\x00\xff nonsense\r\n\r\n",
        b"POST /predict HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /health HTTP/1.1\r\nhost: a\r\n" + 200_000 * b"x",
    ):
        with (
            socket.create_connection(("127.0.0.1", server.port), timeout=5) as client,
            contextlib.suppress(OSError),
        ):
            client.sendall(data)
    assert server.post("/predict", {"texts": folder[1][:1]})["results"][0]


def sent(server, data):
    """Return the status of the first answer to some bytes, after which the connection is closed."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(data)
        return int(client.recv(4096).split()[1])


@pytest.mark.parametrize(
    ("version", "hosts", "status"),
    [("1.1", 0, 400), ("1.1", 1, 200), ("1.1", 2, 400), ("1.0", 0, 200), ("1.0", 2, 400)],
)
def test_a_request_has_one_host(server, version, hosts, status):
    head = f"GET /models HTTP/{version}\r\n" + hosts * "Host: a\r\n" + "\r\n"
    assert sent(server, head.encode()) == status


@pytest.mark.parametrize(
    ("path", "status"),
    [("/predict", 413), ("/nothing", 404), ("/models", 405), ("/v1/projects/x/suggest", 404)],
)
@pytest.mark.parametrize("chunked", [False, True])
def test_the_answer_to_a_body_that_is_not_read_arrives(server, path, status, chunked):
    """A client that sends its whole body before reading receives an answer instead of a reset."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    body = 20_000_000 * b"a"
    connection.request("POST", path, (body for _ in range(1)) if chunked else body, encode_chunked=chunked)
    response = connection.getresponse()
    assert response.status == status and response.getheader("connection") == "close"
    assert json.loads(response.read())["status"] == status
    connection.close()


def test_a_connection_is_used_again_after_a_short_body_that_is_not_read(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    for _ in range(3):
        connection.request("POST", "/nothing", 50_000 * b"a")
        response = connection.getresponse()
        assert response.status == 404 and response.getheader("connection") is None
        response.read()
    connection.close()


def test_answers_do_not_wait_for_acknowledgements(server):
    """Without TCP_NODELAY, the second part of an answer would arrive 40 ms later."""
    times = []
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        for _ in range(20):
            begin = time.perf_counter()
            client.sendall(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n")
            received = b""
            while b'{"status":"ok"}' not in received:
                received += client.recv(4096)
            times.append(time.perf_counter() - begin)
    assert min(times) < 0.03


def test_requests_at_the_same_time_are_batched(server, folder, model):
    texts = folder[1][:40]
    answers = {}

    def ask(i):
        answers[i] = server.post("/predict", {"texts": [texts[i]], "k": 1 + i % 5})

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, text in enumerate(texts):
        row = answers[i]["results"][0]
        assert [(r["label"], r["score"]) for r in row] == expected(model, text, 1 + i % 5)
    metrics = server.ask("GET", "/metrics")[2].decode()
    sums = dict(re.findall(r"^bonsai_batch_texts_(sum|count) (\S+)$", metrics, re.M))
    assert float(sums["sum"]) > float(sums["count"])


# --- further servers ---


def test_slow_bodies_overload_and_the_key(folder):
    path = folder[0] / "themes.bonsai"
    key = folder[0] / "key"
    key.write_text("secret\n")
    server = Server(path, "--api-key-file", key, "--max-requests", 2, "--timeout", 2)
    try:
        assert server.get("/health") and server.ask("GET", "/")[0] == 200
        for path in ("/models", "/metrics"):
            status, _, body = server.ask("GET", path)
            assert status == 401 and b"an API key is needed" in body
        status, _, body = server.ask("GET", "/models", headers={"x-api-key": "wrong"})
        assert status == 401 and b"the API key is wrong" in body
        keyed = {"x-api-key": "secret"}
        for scheme in ("Bearer", "bearer", "BEARER"):
            assert server.get("/models", Authorization=f"{scheme} secret") == server.get("/models", **keyed)
        for value in ("secret", "Basic secret", "Bearer", "Bearersecret", "Bearer Bearer secret"):
            status, headers, _ = server.ask("GET", "/models", headers={"authorization": value})
            assert status == 401 and headers["www-authenticate"] == "Bearer"
        both = {"Authorization": "Bearer secret", **keyed}
        assert server.ask("GET", "/models", headers=both)[0] == 400
        twice = b"GET /models HTTP/1.1\r\nHost: a\r\n" + 2 * b"X-API-Key: secret\r\n" + b"\r\n"
        assert sent(server, twice) == 400
        document = server.get("/openapi.json")["paths"]
        assert "401" in document["/models"]["get"]["responses"]
        assert "401" not in document["/health"]["get"]["responses"] and server.get("/health")
        heads = []
        for head in (b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nhost: a\r\nx: "):
            heads.append(socket.create_connection(("127.0.0.1", server.port), timeout=10))
            heads[-1].sendall(head)
        endless = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        endless.sendall(
            b"POST /predict HTTP/1.1\r\nhost: a\r\nx-api-key: secret\r\ncontent-length: 99999999999\r\n\r\n"
        )
        assert b" 413 " in endless.recv(4096).split(b"\r\n")[0]
        slow = []
        for _ in range(2):  # two clients that do not send what they announce
            client = socket.create_connection(("127.0.0.1", server.port), timeout=10)
            client.sendall(
                b"POST /predict HTTP/1.1\r\nhost: a\r\nx-api-key: secret\r\ncontent-length: 9\r\n\r\n{"
            )
            slow.append(client)
        time.sleep(0.3)
        status, headers, body = server.ask("POST", "/predict", "{}", keyed)
        assert (status, headers["retry-after"]) == (503, "1"), body
        assert server.get("/health")
        for client in slow:  # the time of a request is limited
            answer = client.recv(4096)
            assert b" 503 " in answer.split(b"\r\n")[0] and b"retry-after" in answer
            client.close()
        assert server.post("/predict", {"texts": folder[1][:1]}, **keyed)["results"][0]
        for client in heads:  # so is the time of its headers, and their size
            assert client.recv(1) == b""
            client.close()
        with endless, pytest.raises(ConnectionError):  # so is the time that a refused body is read
            for _ in range(150):
                endless.sendall(b"a")
                time.sleep(0.1)
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
            with contextlib.suppress(OSError):
                client.sendall(b"GET /health HTTP/1.1\r\n")
                for _ in range(100):
                    client.sendall(b"x: " + 4000 * b"y" + b"\r\n")
            with contextlib.suppress(ConnectionError):
                assert client.recv(1) == b""
    finally:
        assert server.stop() == 0


def test_each_client_has_a_rate_and_others_are_not_slowed_down(folder):
    """The rate holds for all workers together; a proxy on this machine forwards addresses of clients."""
    server = Server(folder[0] / "themes.bonsai", "--rate", 0.5, "--workers", 2)
    try:
        begin = time.monotonic()
        answers = [server.ask("GET", "/models") for _ in range(30)]
        seconds = time.monotonic() - begin
        passed = sum(status == 200 for status, _, _ in answers)
        assert 10 <= passed <= 12 + seconds  # at once, and those of this time
        status, headers, body = answers[-1]
        assert status == 429 and b"at most 0.5 a second" in body
        assert 1 <= int(headers["retry-after"]) <= 2
        assert server.ask("GET", "/models", headers={"x-forwarded-for": "198.51.100.7"})[0] == 200
        assert server.ask("GET", "/")[0] == 200 and server.get("/health")
        time.sleep(2.2)
        assert server.get("/models")
    finally:
        assert server.stop() == 0


def test_the_rate_counts_networks_of_ipv6_and_recovers(monkeypatch):
    from bonsai_xmc._server import guard

    now = [100.0]
    monkeypatch.setattr(guard.time, "monotonic", lambda: now[0])
    rates = guard.Rates(20)
    assert [rates.wait("2001:db8::1") for _ in range(20)] == 20 * [0]
    assert rates.wait("2001:db8::2") == 1 and rates.wait("2001:db8:0:1::1") == 0
    assert rates.wait("not an address") == 0
    now[0] += 0.5
    assert [rates.wait("2001:db8::1") for _ in range(11)] == [*10 * [0], 1]
    assert all(guard.Rates(None).wait("a") == 0 for _ in range(1000))


def test_start_and_stop_are_logged_and_an_open_server_warns(folder):
    server = Server(folder[0] / "themes.bonsai")
    assert server.stop() == 0 and "no API key" not in server.events
    server = Server(folder[0] / "themes.bonsai", "--host", "0.0.0.0", first="no API key")
    serving = server.until("serving")
    assert (
        serving["models"] == ["themes"] and serving["version"] and serving["url"].startswith("http://0.0.0.0")
    )
    assert server.stop() == 0
    assert server.until("stopping")["signal"] == "SIGTERM" and server.until("stopped")


def test_a_replaced_file_is_loaded_and_a_broken_one_refused(folder, tmp_path):
    path = tmp_path / "model.bonsai"
    shutil.copy(folder[0] / "themes.bonsai", path)
    server = Server(path)
    try:
        text = folder[1][0]
        old = server.post("/predict", {"texts": [text]})
        (tmp_path / "broken").write_bytes(path.read_bytes()[:-100])
        os.replace(tmp_path / "broken", path)
        assert "truncated" in server.until("new model refused")["error"]
        assert server.post("/predict", {"texts": [text]}) == old

        stop, failures, answers = threading.Event(), [], []

        def keep_asking():
            while not stop.is_set():
                try:
                    answers.append(server.post("/predict", {"texts": [text]})["results"])
                except (OSError, AssertionError, http.client.HTTPException) as error:
                    failures.append(error)

        client = threading.Thread(target=keep_asking)
        client.start()
        make_model(tmp_path / "new", seed=5)
        os.replace(tmp_path / "new", path)
        server.until("reloaded")
        time.sleep(0.5)
        stop.set()
        client.join()
        assert not failures
        new = TextBonsai.load(path)
        assert answers[0] == old["results"]
        assert [(r["label"], r["score"]) for r in answers[-1][0]] == expected(new, text, 5)
        server.process.send_signal(signal.SIGHUP)
        server.until("reloaded")
    finally:
        assert server.stop() == 0


def test_a_worker_that_dies_is_replaced(folder):
    server = Server(folder[0] / "themes.bonsai", "--workers", 2)
    try:
        server.get("/health")
        while (record := server.until("request"))["path"] != "/health":
            pass
        os.kill(record["pid"], signal.SIGKILL)
        assert server.until("worker ended")["worker"] == record["pid"]
        time.sleep(1.5)
        assert all(server.get("/ready") for _ in range(10))
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.bonsai"], "none.bonsai: No such file or directory"),
        (["matrix.bonsai"], "matrix model"),
        (["themes.bonsai", "themes.bonsai"], "would both be served as 'themes'"),
        (["themes.bonsai", "--workers", "0"], "--workers is 0"),
        (["themes.bonsai", "--host", "256.0.0.1"], "256.0.0.1"),
    ],
)
def test_serve_rejects_wrong_usage_before_it_starts(folder, fitted, arguments, message, monkeypatch, capsys):
    fitted.save(folder[0] / "matrix.bonsai")
    monkeypatch.chdir(folder[0])
    assert _cli.main(["serve", "--port", "0", *arguments]) == 1
    assert message in capsys.readouterr().err
