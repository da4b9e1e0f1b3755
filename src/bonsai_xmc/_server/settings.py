"""What can be set about a server."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1  # processes
    n_jobs: int | None = None  # threads of prediction in each; None: an equal share of all
    api_key: str | None = None
    rate: float | None = None  # requests a second of a client; None: any number
    max_body: int = 10_000_000  # bytes
    max_texts: int = 1000  # in one request
    max_labels: int = 1000  # for one text
    max_explained: int = 100_000  # characters of a text that is explained
    max_batch: int = 256  # texts that are predicted together
    max_pending: int = 10_000  # texts that wait in a worker; beyond, requests are refused
    max_requests: int = 512  # under way in a worker; beyond, they are refused
    batch_wait: float = 0.001  # seconds that a batch waits for requests under way
    timeout: float = 30.0  # seconds for a request, from its headers to its answer
    body_timeout: float = 10.0  # seconds for a client to send its body
    retry_after: int = 1  # seconds that a refused client is told to wait
    watch: float = 1.0  # seconds between looks at the model files; 0: never


ANNIF_BATCH = 32  # documents in a batch of Annif's interface
