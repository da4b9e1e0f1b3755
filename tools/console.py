"""Run the console blocks of documents on real data, and write their output into the documents.

    python tools/console.py [docs/text.md …]

In a block marked ``console``, lines that begin with "$ " are commands. All blocks of all given documents run
one after the other in one folder with links to the data sets of BONSAI_DATA, and what follows a command in
the document is replaced by what it prints. Without arguments, all documents with such blocks are written,
which trains models of TIBKAT core and of the Tate collection: some minutes.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "docs" / f"{name}.md" for name in ("text", "scores", "labels", "explain")]
LINKS = {
    "docs.jsonl.gz": "tibkat-core/train.jsonl.gz",
    "dev.jsonl.gz": "tibkat-core/dev.jsonl.gz",
    "names.tsv.gz": "tibkat-core/label_names.tsv.gz",
    "art.jsonl.gz": "tate/train.jsonl.gz",
    "art-test.jsonl.gz": "tate/test.jsonl.gz",
    "art-names.tsv": "tate/label_names.tsv",
}
BLOCK = re.compile(r"(^```console\n)(.*?)(^```$)", re.M | re.S)
WIDTH = 140


def main() -> None:
    documents = [Path(name).resolve() for name in sys.argv[1:]] or DOCUMENTS
    data = Path(os.environ.get("BONSAI_DATA", ROOT.parent / "shared" / "data"))
    with tempfile.TemporaryDirectory() as folder:
        for name, target in LINKS.items():
            (Path(folder) / name).symlink_to(data / target)
        for document in documents:
            text = document.read_text(encoding="utf-8")
            written = BLOCK.sub(lambda found: found[1] + output(found[2], folder) + found[3], text)
            document.write_text(written, encoding="utf-8")


def output(block: str, folder: str) -> str:
    """Return the commands of a block, each with what it prints."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "COLUMNS": "100",
    }
    lines = []
    for command in re.findall(r"^\$ (.*(?:\\\n.*)*)$", block, re.M):
        print(f"$ {command}", file=sys.stderr, flush=True)
        ran = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        if ran.returncode:
            sys.exit(f"{command}\n{ran.stdout}")
        printed = [line.rstrip() for line in ran.stdout.splitlines()]
        lines += [f"$ {command}", *(f"{line[:WIDTH]} …" if len(line) > WIDTH else line for line in printed)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
