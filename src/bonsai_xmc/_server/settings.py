"""Settings of a server."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1  # processes
    n_jobs: int | None = None  # prediction threads of each process; None: an equal share of all
    api_key: str | None = None
    rate: float | None = None  # requests a second of each client; None: no limit
    max_body: int = 10_000_000  # bytes
    max_texts: int = 1000  # in one request
    max_labels: int = 1000  # for one text
    max_explained: int = 100_000  # characters of a text to explain
    max_batch: int = 256  # texts that are predicted together
    max_pending: int = 10_000  # texts that wait in a worker; beyond, requests are refused
    max_requests: int = 512  # in progress in a worker; beyond, they are refused
    batch_wait: float = 0.001  # seconds that a batch waits for requests in progress
    timeout: float = 30.0  # seconds for a request, from its headers to its answer
    body_timeout: float = 10.0  # seconds for a client to send its body
    retry_after: int = 1  # seconds that a refused client is told to wait
    watch: float = 1.0  # seconds between checks of the model files; 0: never


ANNIF_BATCH = 32  # documents in a batch of Annif's interface
