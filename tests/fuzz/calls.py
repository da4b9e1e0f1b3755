"""Targets for calls from outside: arguments of the command line, and requests over HTTP."""

import asyncio
import contextlib
import io
import json
import os
import shutil
import sys
import urllib.parse
from functools import cache
from pathlib import Path
from typing import Any

from bonsai_xmc import Bonsai, TextBonsai, _cli, datasets
from bonsai_xmc._cli import parser
from fuzz.mutate import Attempt, Rng, changed_bytes, changed_value, one_of


def commands(folder: Path) -> Attempt:
    """Arguments of the command line: exit code 0, 1 or 2, and at most one line of error."""
    os.chdir(folder)
    data = datasets.make_xmc(n_rows=30, n_test=6, n_features=20, n_labels=6, features_per_row=5)
    datasets.save_xc("train.txt", data.X_train, data.Y_train)
    datasets.save_xc("test.npz", data.X_test, data.Y_test, "labels.npz")
    texts = [{"title": f"word{i % 5} other{i % 3}", "labels": [f"a{i % 5}"]} for i in range(20)]
    Path("docs.jsonl").write_text("\n".join(map(json.dumps, texts)))
    Path("docs.csv").write_text("title,labels\n" + "\n".join(f"{t['title']},{t['labels'][0]}" for t in texts))
    Bonsai(threshold=0.5, n_jobs=1).fit(data.X_train, data.Y_train, keep_rows=True).save("rows.bonsai")
    model = TextBonsai(min_df=1, classifier=Bonsai(threshold=0.5, n_jobs=1))
    model.fit([t["title"] for t in texts], [t["labels"] for t in texts], keep_rows=True).save("texts.bonsai")
    Path("damaged.bonsai").write_bytes(Path("texts.bonsai").read_bytes()[:-9])
    Path("empty").write_bytes(b"")
    Path("folder").mkdir()
    kept = {path: path.read_bytes() for path in Path().iterdir() if path.is_file()}
    files = [*map(str, kept), "missing", "folder", "-", "out", "folder/new", ""]
    words = [
        "0",
        "1",
        "2",
        "-1",
        "0.5",
        "nan",
        "1e400",
        "x",
        "auto",
        "a1",
        "a1=a2",
        "0=1",
        "title",
        "text",
        "ä",
        "@empty",
    ]
    parser.make_parser = cache(parser.make_parser)  # it takes longer than most commands
    parsers = parser.make_parser().verbs
    verbs = [verb for verb in parser.VERBS if verb not in ("serve", "demo")]
    heads = {
        "train": ["docs.jsonl", "-o", "out"], "evaluate": ["texts.bonsai", "docs.csv"],
        "predict": ["rows.bonsai", "test.npz"], "explain": ["texts.bonsai", "word1", "a1"],
        "calibrate": ["texts.bonsai", "docs.jsonl", "-o", "out"], "info": ["rows.bonsai"],
        "fuse": ["texts.bonsai", "texts.bonsai", "--on", "docs.jsonl", "-o", "out"],
        "learn": ["texts.bonsai", "docs.csv", "-o", "out"], "labels": ["texts.bonsai", "-o", "out"],
        "convert": ["train.txt", "-o", "folder/new"], "import": ["folder", "-o", "out"],
    }  # fmt: skip

    def arguments(rng: Rng) -> list[str]:
        verb = one_of(verbs, rng)
        argv = list(heads[verb])
        if rng.random() < 0.3 and argv:
            argv[int(rng.integers(len(argv)))] = one_of(files + words, rng)
        actions = [action for action in parsers[verb]._actions if action.option_strings]
        for _ in range(rng.integers(0, 4)):
            action = one_of(actions, rng)
            option = one_of(action.option_strings, rng)
            if option in ("--max-memory", "--ray", "--n-jobs"):
                continue
            argv.append(option)
            if action.nargs != 0:
                values = list(action.choices) if action.choices and rng.random() < 0.6 else files + words
                argv += [str(one_of(values, rng)) for _ in range(one_of([0, 1, 1, 1, 1, 2], rng))]
        return [verb, *argv]

    def attempt(rng: Rng) -> bool:
        argv = arguments(rng)
        for path in Path().iterdir():
            if path not in kept:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path, content in kept.items():
            if path.stat().st_size != len(content):
                path.write_bytes(content)
        Path("folder").mkdir()
        out, error = io.TextIOWrapper(io.BytesIO()), io.StringIO()
        given = io.TextIOWrapper(io.BytesIO(one_of([b"", b"word1\n", kept[Path("docs.jsonl")]], rng)))
        before, sys.stdin = sys.stdin, given
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
                code = _cli.main(argv)
        except SystemExit as end:
            code = end.code
        except Exception as problem:
            raise AssertionError(f"bonsai {' '.join(map(repr, argv))}") from problem
        finally:
            sys.stdin = before
        assert code in (0, 1, 2), (argv, code)
        lines = [line for line in error.getvalue().splitlines() if "error: " in line]
        assert len(lines) == (code != 0), (argv, code, error.getvalue())
        return code == 0

    return attempt


def requests(folder: Path) -> Attempt:
    """Requests to the server: never a status of 500, and problems are told in JSON."""
    from bonsai_xmc._server.app import make_app
    from bonsai_xmc._server.routes import PLACES
    from bonsai_xmc._server.served import Served
    from bonsai_xmc._server.settings import Settings

    texts = datasets.make_texts(120, n_test=3, random_state=0)
    plain = TextBonsai(min_df=1, classifier=Bonsai(classifiers="leaf", threshold=0.5, n_jobs=1))
    plain.fit(texts.texts_train, texts.labels_train).save(folder / "plain.bonsai")
    fields = TextBonsai({"title": 1.0, "abstract": 1.0}, min_df=1, classifier=Bonsai(threshold=0.5, n_jobs=1))
    records = [{"title": text[:20], "abstract": text} for text in texts.texts_train]
    fields.fit(records, texts.labels_train).save(folder / "fields.bonsai")
    models = {name: Served.load(str(folder / f"{name}.bonsai"), 1) for name in ("plain", "fields")}
    app = make_app(models, Settings(max_body=5_000_000, max_texts=20, max_labels=50))
    label = str(plain.classes_[0])
    bodies = [
        ("/predict", {"texts": ["old houses", "x"], "k": 3, "model": "plain", "threshold": "auto"}),
        ("/predict", {"text": {"title": "a", "abstract": "b"}, "model": "fields", "restrict": [label]}),
        ("/predict", {"text": "old houses", "exclude": [label], "threshold": 0.5}),
        ("/explain", {"text": "old houses", "label": label, "model": "plain"}),
        ("/v1/projects/plain/suggest-batch", {"documents": [{"text": "a", "document_id": "1"}]}),
    ]
    paths = [place.path.replace("{project_id}", "plain") for place in PLACES]
    queries = ["", "limit=3", "threshold=0.5", "node=1", "tree=0", "search=a&offset=2", "model=fields", "x=1"]
    loop = asyncio.new_event_loop()

    def ask(
        method: str, path: str, query: bytes, body: bytes, kind: str
    ) -> tuple[int, dict[str, str], bytes]:
        sent: list[dict[str, Any]] = []
        scope = {
            "type": "http", "http_version": "1.1", "method": method, "path": path, "query_string": query,
            "raw_path": path.encode(errors="replace"), "root_path": "", "scheme": "http",
            "headers": [(b"content-type", kind.encode()), (b"host", b"a")],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "asgi": {"version": "3.0"},
        }  # fmt: skip

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        loop.run_until_complete(asyncio.wait_for(app(scope, receive, send), 3600))  # for what waits forever
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], headers, b"".join(part.get("body", b"") for part in sent[1:])

    def attempt(rng: Rng) -> bool:
        if rng.random() < 0.7:
            path, value = one_of(bodies, rng)
            body, kind, method = json.dumps(changed_value(value, rng)).encode(), "application/json", "POST"
            body = changed_bytes(body, rng) if rng.random() < 0.3 else body
            body = one_of([b"[" * 100_000, b'{"text":' * 50_000], rng) if rng.random() < 0.01 else body
        elif rng.random() < 0.3:
            path, method, kind = "/v1/projects/plain/suggest", "POST", "application/x-www-form-urlencoded"
            body = changed_bytes(urllib.parse.urlencode({"text": "old häuser", "limit": 3}).encode(), rng)
        else:
            path, body, kind, method = one_of(paths, rng), b"", "", one_of(["GET", "GET", "POST", "PUT"], rng)
        if rng.random() < 0.1:
            path = "/" + changed_bytes(path.encode(), rng)[:200].decode(errors="replace").lstrip("/")
        query = one_of(queries, rng).encode()
        query = changed_bytes(query, rng)[:2000] if rng.random() < 0.5 else query
        status, headers, answer = ask(method, path, query, body, kind)
        assert status < 500, (status, method, path, query, body[:300])
        if "json" in headers.get("content-type", ""):
            json.loads(answer)
        return status == 200

    return attempt
