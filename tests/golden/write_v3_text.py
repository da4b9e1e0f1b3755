"""Wrote tests/golden/v3_text, once: a text model must be read, and suggest the same, for ever."""

import json
from pathlib import Path

from bonsai_xmc import TextBonsai

FOLDER = Path(__file__).parent / "v3_text"
RECORDS = [
    {"title": "Ziegelhäuser in Bremen", "abstract": "Old brick houses of Bremen 🧱, İzmir and 東京."},
    {"title": "Wärmepumpen", "abstract": "Heat pumps for old houses; Größe und Maß."},
    {"title": "Brick kilns", "abstract": "How bricks are fired."},
    {"title": "Heat", "abstract": ""},
]
LABELS = [["bricks", "Häuser"], ["heating", "Häuser"], ["bricks"], ["heating"]]
QUERIES = [
    {"title": "A heat pump", "abstract": "for brick houses"},
    {"title": "ziegelHÄUSER", "abstract": "東京"},
]


def main():
    path = FOLDER / "text.bonsai"
    if path.exists():
        raise SystemExit(f"{path} is there and stays as it is")
    model = TextBonsai(fields=["title", "abstract"], min_df=1, word_ngrams=2).fit(RECORDS, LABELS)
    model.name_labels({"bricks": "Brick construction"}).save(path)
    expected = {
        "queries": QUERIES,
        "suggested": model.suggest(QUERIES, k=3),
        "names": list(model.label_names_),
    }
    path.with_suffix(".json").write_text(json.dumps(expected, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
