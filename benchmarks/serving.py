"""Comparison with omikuji where it is used: in Annif, behind its server, imported; and how commands start.

    make test-annif                                       # installs Annif into build/annif
    build/annif/bin/python benchmarks/serving.py annif    # commands of Annif, and the backends alone
    build/annif/bin/python benchmarks/serving.py annif omikuji:train omikuji:eval    # some of the steps
    build/annif/bin/python benchmarks/serving.py http     # both servers, the same requests
    build/annif/bin/python benchmarks/serving.py imported # omikuji's model after `bonsai import`
    python benchmarks/serving.py startup                  # commands that do next to nothing

All on TIBKAT core; `http` and `imported` need the model that `annif omikuji` trains. CPU time is compared,
which other work on the machine affects less.

annif: each command runs in a process of its own. The backends alone: training from the matrix of TF-IDF
values to the saved model, and suggesting from rows of that matrix, that is, after tokenising, which takes
most of the time and is done by Annif.

http: requests of Annif's interface, the dev texts, over the loopback from this process, one server at a
time, each with two workers. Annif runs under gunicorn with uvicorn's workers.
"""

import argparse
import asyncio
import gzip
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

ROOT = Path(__file__).parents[1]
WORK = ROOT / "build" / "serving"
DATA = Path(os.environ.get("BONSAI_DATA", ROOT.parent / "shared" / "data")) / "tibkat-core"


def main() -> None:
    benchmarks = {"annif": inside_annif, "http": over_http, "imported": import_models, "startup": startup}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("benchmark", choices=benchmarks)
    parser.add_argument(
        "part", nargs=argparse.REMAINDER, help="some steps, such as omikuji:train (default: all)"
    )
    given = parser.parse_args()
    benchmarks[given.benchmark](given.part)


def records(part: str) -> list[dict[str, Any]]:
    with gzip.open(DATA / f"{part}.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


# --- Inside Annif ---------------------------------------------------------------------------------

COMMON = "language=en\nanalyzer=snowball(german)\nvocab=gnd\nlimit=100\n"
OMIKUJI = "cluster_balanced=False\ncluster_k=100\nmax_depth=3\n"
PROJECTS = {
    "omikuji": ("omikuji, its Bonsai settings", "backend=omikuji\n" + OMIKUJI),
    "bonsai-trees": ("bonsai, the same settings", "backend=bonsai\n" + OMIKUJI),
    "bonsai": ("bonsai, default", "backend=bonsai\n"),
}


def inside_annif(arguments: list[str]) -> None:
    if arguments[:1] == ["--inside"]:
        inside(*arguments[1:])
        return
    prepare()
    for chosen in arguments or PROJECTS:
        name, _, step = chosen.partition(":")
        for each in [step] if step else STEPS:
            print(f"{name}: {each}", file=sys.stderr)
            results = read(name)
            results[each] = STEPS[each](name)
            (WORK / f"{name}.json").write_text(json.dumps(results, indent=2))
    print(annif_table({name: read(name) for name in PROJECTS}))


def read(name: str) -> dict[str, Any]:
    path = WORK / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def prepare() -> None:
    WORK.mkdir(parents=True, exist_ok=True)
    projects = "".join(f"[{name}]\nname={name}\n{COMMON}{more}\n" for name, (_, more) in PROJECTS.items())
    (WORK / "projects.cfg").write_text(projects)
    if (WORK / "dev.tsv").exists():
        return
    with gzip.open(DATA / "label_names.tsv.gz", "rt") as file:
        names = dict(line.rstrip("\n").split("\t", 1) for line in file)
    subjects: set[str] = set()
    for part in ("train", "dev"):
        with open(WORK / f"{part}.tsv", "w") as out:
            for record in records(part):
                text = " ".join(f"{record['title']} {record['abstract']}".split())
                out.write(f"{text}\t{' '.join(map(uri, record['subjects']))}\n")
                subjects.update(record["subjects"])
    vocabulary = "".join(f"{uri(subject)}\t{names.get(subject, subject)}\n" for subject in sorted(subjects))
    (WORK / "vocab.tsv").write_text(vocabulary)
    annif("load-vocab", "gnd", "vocab.tsv", "--language", "en")


def uri(subject: str) -> str:
    return f"<https://d-nb.info/{subject.replace(':', '/')}>"


def annif(*arguments: str) -> tuple[str, dict[str, float]]:
    """Return the output, seconds and peak memory of an Annif command."""
    begin = time.perf_counter()
    command = [str(Path(sys.executable).parent / "annif"), *arguments]
    with open(WORK / "log.txt", "ab") as log:
        process = subprocess.Popen(command, cwd=WORK, stdout=subprocess.PIPE, stderr=log, text=True)
        output = process.stdout.read() if process.stdout else ""
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(arguments)} failed: see {WORK / 'log.txt'}")
    cpu = usage.ru_utime + usage.ru_stime
    return output, {"s": time.perf_counter() - begin, "CPU s": cpu, "MB": usage.ru_maxrss / 1024}


def train(name: str) -> dict[str, float]:
    folder = WORK / "data" / "projects" / name
    shutil.rmtree(folder, ignore_errors=True)
    return annif("train", name, "train.tsv")[1]


def index(name: str) -> dict[str, float]:
    """Write suggestions for all dev texts to a file."""
    return annif("index", name, "dev.tsv", "--force", "--suffix", f".{name}")[1]


def evaluate(name: str) -> dict[str, float]:
    output, used = annif("eval", name, "dev.tsv")
    found = re.findall(r"^(F1@5|NDCG):?\s+([\d.]+)$", output, re.M)
    return used | {metric: float(value) for metric, value in found}


def alone(name: str, task: str) -> dict[str, float]:
    command = [sys.executable, __file__, "annif", "--inside", name, task]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    result: dict[str, float] = json.loads(said.splitlines()[-1])
    return result | {"model MB": size_of(name)}


def size_of(name: str) -> float:
    """Return MB of the model, without training data and the vectorizer, which is equal for all."""
    files = (path for path in (WORK / "data" / "projects" / name).rglob("*") if path.is_file())
    model = [path for path in files if "-train" not in path.name and path.name != "vectorizer"]
    return sum(path.stat().st_size for path in model) / 1e6


STEPS: dict[str, Callable[[str], dict[str, float]]] = {
    "train": train,
    "index": index,
    "eval": evaluate,
    "train-alone": lambda name: alone(name, "train"),
    "suggest-alone": lambda name: alone(name, "suggest"),
}


# --- in a process of its own: the backend without tokenising


class Prepared:
    """A vectorizer that returns stored rows."""

    def __init__(self, vectorizer: Any, batches: list[Any]) -> None:
        self.vocabulary_ = vectorizer.vocabulary_
        self.batches = iter(batches)

    def transform(self, texts: list[str]) -> Any:
        return next(self.batches)


def inside(name: str, task: str) -> None:
    os.chdir(WORK)
    import annif as package
    import annif.registry
    from annif.corpus import DocumentFileTSV

    if "bonsai" in name:
        import bonsai_xmc.annif  # noqa: F401, registers the backend
    app = package.create_flask_app("annif.default_config.Config")
    with app.app_context():
        annif.registry.initialize_projects(app)
        project = annif.registry.get_project(name)
        project.initialize()
        backend = project.backend
        corpus = DocumentFileTSV(
            str(WORK / ("train.tsv" if task == "train" else "dev.tsv")), project.subjects
        )
        print(json.dumps(train_alone(backend, corpus) if task == "train" else suggest_alone(backend, corpus)))


def rows_of(backend: Any, corpus: Any, part: str) -> Any:
    """Return the matrix of TF-IDF values, which is equal for all projects and computed once."""
    from scipy.sparse import load_npz, save_npz

    path = WORK / f"rows-{part}.npz"
    if not path.exists():
        save_npz(path, backend.vectorizer.transform(document.text for document in corpus.documents))
    return load_npz(path).tocsr()


def train_alone(backend: Any, corpus: Any) -> dict[str, float]:
    rows = rows_of(backend, corpus, "train")
    backend.create_vectorizer = lambda texts, params: rows
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    begin, cpu = time.perf_counter(), time.process_time()
    backend.train(corpus)
    return {"s": time.perf_counter() - begin, "CPU s": time.process_time() - cpu, "before MB": before}


def suggest_alone(backend: Any, corpus: Any) -> dict[str, float]:
    batches = list(corpus.doc_batches)
    matrix = rows_of(backend, corpus, "dev")
    ends = [0]
    for batch in batches:
        ends.append(ends[-1] + len(batch))
    rows = [matrix[begin:end] for begin, end in pairwise(ends)]
    best = cpu = float("inf")
    for _ in range(3):
        backend.vectorizer = Prepared(backend.vectorizer, rows)
        begin, begin_cpu = time.perf_counter(), time.process_time()
        for batch in batches:
            backend.suggest(batch, {"limit": 100})
        best = min(best, time.perf_counter() - begin)
        cpu = min(cpu, time.process_time() - begin_cpu)
    n = sum(map(len, batches))
    return {"s": best, "documents/s": n / best, "CPU ms a document": 1e3 * cpu / n}


COLUMNS = {  # title: (step, value, format)
    "F1@5": ("eval", "F1@5", ".4f"),
    "NDCG": ("eval", "NDCG", ".4f"),
    "`annif train`, CPU s": ("train", "CPU s", ".0f"),
    "peak MB": ("train", "MB", ",.0f"),
    "training alone, CPU s": ("train-alone", "CPU s", ".1f"),
    "model MB": ("train-alone", "model MB", ",.0f"),
    "`annif index`, CPU s": ("index", "CPU s", ".0f"),
    "`annif eval`, CPU s": ("eval", "CPU s", ".0f"),
    "peak MB of eval": ("eval", "MB", ",.0f"),
    "suggesting alone, CPU ms a document": ("suggest-alone", "CPU ms a document", ".2f"),
}


def annif_table(results: dict[str, Any]) -> str:
    """Return a row per measure with a column per project; empty where a step was not run."""
    lines = [["", *(title for title, _ in PROJECTS.values())], ["---"] * (len(PROJECTS) + 1)]
    for title, (step, value, style) in COLUMNS.items():
        found = [results[name].get(step, {}).get(value) for name in PROJECTS]
        lines.append([title, *("" if number is None else f"{number:{style}}" for number in found)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


# --- Over HTTP --------------------------------------------------------------------------------------

WORKERS = "2"
SECONDS = 8.0
CONNECTIONS = (1, 8, 64)
BATCH = 32
BATCH_CONNECTIONS = (4, 16)
BIN = Path(sys.executable).parent


def over_http(arguments: list[str]) -> None:
    if arguments == ["--train"]:
        train_texts()
        return
    if not (WORK / "bonsai.bonsai").exists():
        subprocess.run([sys.executable, __file__, "http", "--train"], check=True)
    texts = [f"{record['title']} {record['abstract']}" for record in records("dev")]
    results = {}
    for name, project, port, start in (
        ("Annif with omikuji", "omikuji", 8771, annif_server),
        ("bonsai serve", "bonsai", 8772, own_server),
    ):
        server = start(port)
        try:
            wait(f"http://127.0.0.1:{port}/v1/projects")
            results[name] = asyncio.run(measure(port, server.pid, project, texts))
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(60)
        print(f"{name}: {json.dumps(results[name])}", file=sys.stderr)
    (WORK / "over-http.json").write_text(json.dumps(results, indent=2))
    print(http_table(results))


def train_texts() -> None:
    from bonsai_xmc import Bonsai, TextBonsai

    rows = [record for record in records("train") if record["subjects"]]
    texts = [f"{record['title']} {record['abstract']}" for record in rows]
    model = TextBonsai(classifier=Bonsai(threshold=0.5)).fit(texts, [record["subjects"] for record in rows])
    model.save(WORK / "bonsai.bonsai")


def annif_server(port: int) -> "subprocess.Popen[bytes]":
    command = [
        str(BIN / "gunicorn"),
        "annif:create_app()",
        "--workers",
        WORKERS,
        "--bind",
        f"127.0.0.1:{port}",
    ]
    command += ["--worker-class", "uvicorn.workers.UvicornWorker", "--timeout", "600"]
    environment = os.environ | {"ANNIF_PROJECTS_INIT": "^omikuji$"}
    return subprocess.Popen(
        command, cwd=WORK, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )


def own_server(port: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "bonsai_xmc", "serve", "bonsai.bonsai", "--port", str(port)]
    command += ["--workers", WORKERS]
    return subprocess.Popen(command, cwd=WORK, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def wait(url: str) -> None:
    for _ in range(600):
        try:
            urllib.request.urlopen(url, timeout=60).read()
            return
        except OSError:
            time.sleep(0.5)
    raise SystemExit(f"{url} does not answer")


def request(path: str, body: bytes, kind: str) -> bytes:
    lines = (
        f"POST {path} HTTP/1.1",
        "host: localhost",
        f"content-type: {kind}",
        f"content-length: {len(body)}",
    )
    return "\r\n".join([*lines, "", ""]).encode() + body


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process and its children, the workers."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(cpu_seconds(int(child)) for child in children)


async def measure(port: int, pid: int, project: str, texts: list[str]) -> dict[str, Any]:
    form = "application/x-www-form-urlencoded"
    path = f"/v1/projects/{project}/suggest"
    single = [
        request(path, urllib.parse.urlencode({"text": t, "limit": 10}).encode(), form) for t in texts[:2000]
    ]
    batches = []
    for begin in range(0, 2000, BATCH):
        documents = [{"text": text} for text in texts[begin : begin + BATCH]]
        batches.append(
            request(
                f"{path}-batch?limit=10", json.dumps({"documents": documents}).encode(), "application/json"
            )
        )
    await load(port, single, 8, 2.0)  # warm
    results: dict[str, Any] = {}
    for connections in CONNECTIONS:
        begin = cpu_seconds(pid)
        seconds, times = await load(port, single, connections, SECONDS)
        cpu = cpu_seconds(pid) - begin
        p50, p99 = np.percentile(times, [50, 99])
        results[str(connections)] = {
            "requests/s": len(times) / seconds,
            "p50 ms": 1e3 * p50,
            "p99 ms": 1e3 * p99,
            "CPU ms": 1e3 * cpu / len(times),
        }
    for connections in BATCH_CONNECTIONS:
        begin = cpu_seconds(pid)
        seconds, times = await load(port, batches, connections, SECONDS)
        results[f"batches, {connections}"] = {
            "documents/s": BATCH * len(times) / seconds,
            "CPU ms": 1e3 * (cpu_seconds(pid) - begin) / (BATCH * len(times)),
        }
    return results


async def load(
    port: int, requests: list[bytes], connections: int, seconds: float
) -> tuple[float, list[float]]:
    """Send requests over this many connections as fast as they are answered: (seconds, time of each)."""
    times: list[float] = []
    begin = time.perf_counter()

    async def client(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        place = number * 37
        while time.perf_counter() - begin < seconds:
            start = time.perf_counter()
            writer.write(requests[place % len(requests)])
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise SystemExit(head.decode())
            length = next(
                int(l.split(b":")[1]) for l in head.lower().split(b"\r\n") if l.startswith(b"content-length")
            )
            await reader.readexactly(length)
            times.append(time.perf_counter() - start)
            place += 1
        writer.close()

    await asyncio.gather(*(client(number) for number in range(connections)))
    return time.perf_counter() - begin, times


def http_table(results: dict[str, Any]) -> str:
    titles = ("", "connections", "requests/s", "p50, ms", "p99, ms", "server's CPU, ms a document")
    lines = [f"| {' | '.join(titles)} |", "|" + " --- |" * len(titles)]
    for name, result in results.items():
        for connections in map(str, CONNECTIONS):
            found = result[connections]
            cells = [format(found["requests/s"], ",.0f"), format(found["p50 ms"], ".1f")]
            cells += [format(found["p99 ms"], ",.0f"), format(found["CPU ms"], ".2f")]
            lines.append(f"| {' | '.join([name, connections, *cells])} |")
        for connections in BATCH_CONNECTIONS:
            found = result[f"batches, {connections}"]
            cells = [f"{found['documents/s']:,.0f} documents/s", "", "", f"{found['CPU ms']:.2f}"]
            lines.append(f"| {' | '.join([name, f'{connections}, batches of {BATCH}', *cells])} |")
    return "\n".join(lines)


# --- Imported models --------------------------------------------------------------------------------

MODEL = WORK / "data" / "projects" / "omikuji" / "omikuji-model"
N_ROWS = 1500
K = 10


def import_models(arguments: list[str]) -> None:
    import joblib
    import omikuji

    lines = (WORK / "dev.tsv").read_text(encoding="utf-8").splitlines()[:N_ROWS]
    vectorizer = joblib.load(MODEL.parent / "vectorizer")
    X = csr_array(vectorizer.transform([line.split("\t")[0] for line in lines])).astype(np.float32)
    pairs = [
        list(zip(row.indices.tolist(), row.data.tolist(), strict=True))
        for row in (X[[i]] for i in range(N_ROWS))
    ]
    theirs = omikuji.Model.load(str(MODEL))
    theirs.init_prediction_thread_pool(1)
    begin = time.process_time()
    expected = [theirs.predict(row, top_k=K) for row in pairs]
    seconds = time.process_time() - begin
    size = sum(path.stat().st_size for path in MODEL.iterdir())
    report = {"omikuji": {"MB": size / 1e6, "CPU ms a row": 1e3 * seconds / N_ROWS}}
    report["imported"] = imported(X, expected)
    report["imported --quantise"] = imported(X, expected, "--quantise")
    print(json.dumps(report, indent=2))


def imported(X: csr_array, expected: list[list[tuple[int, float]]], *options: str) -> dict[str, float]:
    from bonsai_xmc import Bonsai

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.bonsai")
        command = [sys.executable, "-m", "bonsai_xmc", "import", str(MODEL), "-o", path, "--json", *options]
        sizes = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        model = Bonsai.load(path, mmap=False).set_params(n_jobs=1)
    begin = time.process_time()
    ids, scores = model.top_k(X, K)
    seconds = time.process_time() - begin
    begin = time.process_time()
    for i in range(300):
        model.top_k(X[[i]], K)
    single = (time.process_time() - begin) / 300
    rows = [
        (dict(row), list(zip(found.tolist(), values.tolist(), strict=True)))
        for row, found, values in zip(expected, ids, scores, strict=True)
        if row
    ]

    def share(holds: Callable[[dict[int, float], list[tuple[int, float]]], float]) -> float:
        return float(np.mean([holds(row, found) for row, found in rows]))

    return {
        "MB": sizes["bytes"] / 1e6,
        "CPU ms a row": 1e3 * seconds / N_ROWS,
        "CPU ms, one row at a time": 1e3 * single,
        "same 5 labels in the same order": share(lambda a, b: list(a)[:5] == [l for l, _ in b[:5]]),
        "same 10 labels in the same order": share(lambda a, b: list(a) == [l for l, _ in b]),
        "5 scores within 0.001": share(lambda a, b: all(abs(a.get(l, 9) - s) < 1e-3 for l, s in b[:5])),
        "top-5 overlap": share(lambda a, b: len(set(list(a)[:5]) & {l for l, _ in b[:5]}) / 5),
    }


# --- Starting ---------------------------------------------------------------------------------------

RUNS = 5
LARGE = ("numpy", "scipy", "sklearn", "pandas")
_PROGRAM = """
import json, re, sys
from bonsai_xmc._cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
memory = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
print(json.dumps([memory, sorted(sys.modules)]), file=sys.stderr)
"""


def commands(folder: str) -> dict[str, list[str]]:
    """Return commands by title, with a small model for those that need one."""
    from bonsai_xmc import TextBonsai, datasets

    data = datasets.make_texts(500, n_test=1, n_labels=50, random_state=0)
    model = os.path.join(folder, "model.bonsai")
    TextBonsai().fit(data.texts_train, data.labels_train).save(model)
    return {
        "--version": ["--version"],
        "--help": ["--help"],
        "train --help-all": ["train", "--help-all"],
        "wrong usage": ["train"],
        "info": ["info", model],
        "predict one text": ["predict", model, data.texts_train[0]],
    }


def fastest(line: list[str]) -> tuple[float, float, list[str]]:
    """Return seconds, megabytes and the large libraries of the fastest run."""
    best = (float("inf"), 0.0, [""])
    for _ in range(RUNS):
        begin = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", _PROGRAM, *line], capture_output=True, text=True)
        seconds = time.perf_counter() - begin
        memory, modules = json.loads(done.stderr.splitlines()[-1])
        best = min(best, (seconds, memory, [name for name in LARGE if name in modules]))
    return best


def startup(arguments: list[str]) -> None:
    print(f"{Path(sys.executable).name} -m bonsai_xmc …  {'seconds':>9} {'MB':>6}  imports")
    with tempfile.TemporaryDirectory() as folder:
        for name, line in commands(folder).items():
            seconds, memory, imports = fastest(line)
            print(f"{name:<24} {seconds:9.2f} {memory:6.0f}  {', '.join(imports) or '–'}")


if __name__ == "__main__":
    main()
