"""Our server beside Annif's with omikuji: requests/s and latency for single texts, documents/s in batches.

    build/annif/bin/python benchmarks/inside_annif.py omikuji     # trains omikuji's model first
    build/annif/bin/python benchmarks/over_http.py                # prints a table

Both servers get the same requests of Annif's interface, the dev texts of TIBKAT core, over the loopback from
this process, one server at a time, each with two workers. Annif runs under gunicorn with uvicorn's workers.
"""

import asyncio
import gzip
import json
import os
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
WORK = ROOT / "build" / "inside-annif"
DATA = Path(os.environ.get("BONSAI_DATA", ROOT.parent / "shared" / "data")) / "tibkat-core"
WORKERS = "2"
SECONDS = 8.0
CONNECTIONS = (1, 8, 64)
BATCH = 32
BATCH_CONNECTIONS = (4, 16)
BIN = Path(sys.executable).parent


def records(part: str) -> list[dict[str, Any]]:
    with gzip.open(DATA / f"{part}.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


def main() -> None:
    if sys.argv[1:] == ["--train"]:
        train()
        return
    if not (WORK / "bonsai.bonsai").exists():
        subprocess.run([sys.executable, __file__, "--train"], check=True)
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
    print(table(results))


def train() -> None:
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
    """Of a process and of its children, which are the workers."""
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
    """As many requests as can be answered, over this many connections; (seconds, time of each)."""
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


def table(results: dict[str, Any]) -> str:
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


if __name__ == "__main__":
    main()
