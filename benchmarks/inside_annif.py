"""Ours beside omikuji inside Annif, on TIBKAT core: `annif train`, `index`, `eval`, and the backends alone.

    make test-annif                                        # installs Annif into build/annif
    build/annif/bin/python benchmarks/inside_annif.py      # writes build/inside-annif, prints a table
    build/annif/bin/python benchmarks/inside_annif.py omikuji:train omikuji:eval    # some of the steps

Each command of Annif runs in a process of its own. The backends alone: training from the matrix of TF-IDF
values to the saved model, and suggesting from rows of that matrix, that is, after tokenising, which takes
most of the time and is Annif's own. CPU time is compared, which other work on the machine affects less.
"""

import gzip
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
WORK = ROOT / "build" / "inside-annif"
DATA = Path(os.environ.get("BONSAI_DATA", ROOT.parent / "shared" / "data")) / "tibkat-core"
COMMON = "language=en\nanalyzer=snowball(german)\nvocab=gnd\nlimit=100\n"
OMIKUJI = "cluster_balanced=False\ncluster_k=100\nmax_depth=3\n"
PROJECTS = {
    "omikuji": ("omikuji, its Bonsai settings", "backend=omikuji\n" + OMIKUJI),
    "bonsai-trees": ("bonsai, the same settings", "backend=bonsai\n" + OMIKUJI),
    "bonsai": ("bonsai, default", "backend=bonsai\n"),
}


def main() -> None:
    if sys.argv[1:2] == ["--inside"]:
        inside(*sys.argv[2:])
        return
    prepare()
    for chosen in sys.argv[1:] or PROJECTS:
        name, _, step = chosen.partition(":")
        for each in [step] if step else STEPS:
            print(f"{name}: {each}", file=sys.stderr)
            results = read(name)
            results[each] = STEPS[each](name)
            (WORK / f"{name}.json").write_text(json.dumps(results, indent=2))
    print(table({name: read(name) for name in PROJECTS}))


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
        with gzip.open(DATA / f"{part}.jsonl.gz", "rt") as file, open(WORK / f"{part}.tsv", "w") as out:
            for record in map(json.loads, file):
                text = " ".join(f"{record['title']} {record['abstract']}".split())
                out.write(f"{text}\t{' '.join(map(uri, record['subjects']))}\n")
                subjects.update(record["subjects"])
    vocabulary = "".join(f"{uri(subject)}\t{names.get(subject, subject)}\n" for subject in sorted(subjects))
    (WORK / "vocab.tsv").write_text(vocabulary)
    annif("load-vocab", "gnd", "vocab.tsv", "--language", "en")


def uri(subject: str) -> str:
    return f"<https://d-nb.info/{subject.replace(':', '/')}>"


def annif(*arguments: str) -> tuple[str, dict[str, float]]:
    """Output, seconds and peak memory of a command of Annif."""
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
    """Suggestions for all dev texts, written to a file."""
    return annif("index", name, "dev.tsv", "--force", "--suffix", f".{name}")[1]


def evaluate(name: str) -> dict[str, float]:
    output, used = annif("eval", name, "dev.tsv")
    found = re.findall(r"^(F1@5|NDCG):?\s+([\d.]+)$", output, re.M)
    return used | {metric: float(value) for metric, value in found}


def alone(name: str, task: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--inside", name, task]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    result: dict[str, float] = json.loads(said.splitlines()[-1])
    return result | {"model MB": size_of(name)}


def size_of(name: str) -> float:
    """MB of the model, without the vectorizer, which is the same for all, and training data."""
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
    """A vectorizer that has the rows already."""

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
    """The matrix of TF-IDF values, which is the same for all projects: computed once."""
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


def table(results: dict[str, Any]) -> str:
    """A row for each measure, a column for each project; empty where a step was not run."""
    lines = [["", *(title for title, _ in PROJECTS.values())], ["---"] * (len(PROJECTS) + 1)]
    for title, (step, value, style) in COLUMNS.items():
        found = [results[name].get(step, {}).get(value) for name in PROJECTS]
        lines.append([title, *("" if number is None else f"{number:{style}}" for number in found)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    main()
