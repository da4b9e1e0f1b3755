"""Documents from files: each format, told apart by content and name, and each fault with its line."""

import gzip
import io
import json
import re
import sys

import pytest

from bonsai_xmc import datasets
from bonsai_xmc._base.sniff import sniff
from bonsai_xmc.datasets import read_documents, read_label_names

BRICK, PUMP = "Old brick houses, “new”", "Wärmepumpen in Bremen"
RECORDS = [
    {"id": "a1", "title": "Brick", "abstract": BRICK, "subjects": ["houses", "old bricks"], "year": 1990},
    {"id": "a2", "title": "Heat", "abstract": PUMP, "subjects": ["heating"], "year": None},
]  # fmt: skip
EXPECTED = [
    ("a1", {"title": "Brick", "abstract": BRICK}, ["houses", "old bricks"]),
    ("a2", {"title": "Heat", "abstract": PUMP}, ["heating"]),
]
JSONL = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in RECORDS)

PLAIN = [(BRICK, ["3", "17"]), (PUMP, ["4"])]
# name of the file, its content, its format
PLAIN_FILES = {
    "annif": ("train.tsv", f"{BRICK}\t<3> <17>\n{PUMP}\t<4>\n"),
    "pecos": ("train.txt", f"3,17\t{BRICK}\n4::0.5\t{PUMP}\n"),
    "libmultilabel": ("train.txt", f"a1\t3 17\t{BRICK}\na2\t4\t{PUMP}\n"),
    "fasttext": ("train.txt", f"__label__3 __label__17 {BRICK}\n__label__4 {PUMP}\n"),
}
TABLES = {
    "csv": f'id,title,abstract,subjects\na1,Brick,"{BRICK}",houses;old bricks\na2,Heat,{PUMP},heating\n',
    "tsv": f"id\ttitle\tabstract\tsubjects\na1\tBrick\t{BRICK}\thouses|old bricks\n"
    f'a2\tHeat\t"{PUMP}"\theating\n',
}


def rows(documents):
    return [(d.id, d.text, d.labels) for d in documents]


def write(path, content, packed=False):
    path.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_json_lines(tmp_path, packed):
    documents = read_documents(write(tmp_path / "docs.jsonl", JSONL, packed))
    assert documents.kind == "jsonl"
    assert (documents.fields, documents.label_field) == (("title", "abstract"), "subjects")
    assert rows(documents) == EXPECTED
    assert documents.problems.report() == []


def test_a_json_array(tmp_path):
    documents = read_documents(write(tmp_path / "docs.json", json.dumps(RECORDS, indent=1)))
    assert documents.kind == "json"
    assert rows(documents) == EXPECTED
    with pytest.raises(ValueError, match=r"bad\.json is not a JSON array"):
        read_documents(write(tmp_path / "bad.json", "[1, 2"))


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_tables(tmp_path, kind, mark):
    documents = read_documents(write(tmp_path / f"docs.{kind}.gz", mark + TABLES[kind], packed=True))
    assert documents.kind == kind
    assert rows(documents) == EXPECTED
    assert documents.separator == {"csv": ";", "tsv": "|"}[kind]


def test_tables_without_a_telling_name(tmp_path):
    for kind, content in TABLES.items():
        documents = read_documents(
            write(tmp_path / "docs", content), text="title,abstract", labels="subjects"
        )
        assert documents.kind == kind
        assert rows(documents) == EXPECTED


def test_cells_of_several_lines_and_other_delimiters(tmp_path):
    content = 'title;text;labels\n"One; ""two""";"first\nsecond";"[\'a\', \'b, c\']"\nx;y y;["d"]\n'
    documents = read_documents(write(tmp_path / "d.csv", content), text=["title", "text"])
    assert [(d.line, d.text, d.labels) for d in documents] == [
        (3, {"title": 'One; "two"', "text": "first\nsecond"}, ["a", "b, c"]),
        (4, {"title": "x", "text": "y y"}, ["d"]),
    ]


@pytest.mark.parametrize("kind", PLAIN_FILES)
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_formats_without_fields(tmp_path, kind, ends):
    name, content = PLAIN_FILES[kind]
    documents = read_documents(write(tmp_path / name, content.replace("\n", ends)))
    assert documents.kind == kind
    assert documents.fields == ()
    assert [(text, labels) for _, text, labels in rows(documents)] == PLAIN
    ids = [d.id for d in read_documents(tmp_path / name)]
    assert ids == (["a1", "a2"] if kind == "libmultilabel" else [None, None])


def test_variants_of_formats_without_fields(tmp_path):
    path = write(tmp_path / "annif.tsv", f"{BRICK}\thttp://x/3 http://x/17\n{PUMP}\thttps://x/4\n")
    documents = read_documents(path)
    assert documents.kind == "annif"
    assert [d.labels for d in documents] == [["http://x/3", "http://x/17"], ["https://x/4"]]
    path = write(tmp_path / "train.txt", f"E11 E12\t{BRICK}\nE13\t{PUMP}\nE14\n")
    documents = read_documents(path, format="libmultilabel")
    assert [(d.text, d.labels) for d in documents] == [(BRICK, ["E11", "E12"]), (PUMP, ["E13"])]
    assert "1 row without the cells labels and text: left out (line 3)" in documents.problems.report()[0]


def test_a_table_without_a_header(tmp_path):
    """Its first row is not taken for the names of columns in silence."""
    path = write(tmp_path / "docs.tsv", f"{BRICK}\ta b\n{PUMP}\tc\n")
    with pytest.raises(ValueError, match=r"which field holds the labels\? There are 'Old brick houses"):
        read_documents(path)


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(RECORDS), tmp_path / "docs.parquet")
    assert rows(read_documents(tmp_path / "docs.parquet")) == EXPECTED
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(ValueError, match=r"bad\.parquet is not a valid Parquet file"):
        read_documents(tmp_path / "bad.parquet")


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "docs.parquet").write_bytes(b"PAR1")
    with pytest.raises(ImportError, match=r"docs\.parquet is a Parquet file, which needs pyarrow"):
        read_documents(tmp_path / "docs.parquet")


def test_standard_input_in_small_pieces(monkeypatch):
    class Pipe(io.RawIOBase):
        left = JSONL.encode()

        def readable(self):
            return True

        def readinto(self, buffer):
            size = min(7, len(buffer), len(self.left))
            buffer[:size] = self.left[:size]
            self.left = self.left[size:]
            return size

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Pipe())))
    documents = read_documents("-")
    assert documents.name == "standard input"
    assert rows(documents) == EXPECTED


def test_it_is_a_stream(monkeypatch):
    """The first documents are there before the input ends."""
    line = JSONL.splitlines(keepends=True)[0].encode()

    class Endless(io.RawIOBase):
        at = 0

        def readable(self):
            return True

        def readinto(self, buffer):
            whole = len(buffer) // len(line) * line or line
            at = self.at
            part = (line[at:] + whole)[: len(buffer)]
            buffer[: len(part)] = part
            self.at = (at + len(part)) % len(line)
            return len(part)

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Endless(), 1 << 16)))
    iterator = iter(read_documents("-"))
    assert [next(iterator).id for _ in range(1000)] == ["a1"] * 1000


# Faults

FAULTY = b"""{"title": "One", "labels": ["a"]}
{"title": "Two", "labels": []}
not JSON

{"title": "", "labels": ["a"]}
["a list"]
{"title": "caf\xe9", "labels": ["a"]}
{"labels": ["a"]}
{"title": "Nine"}
{"title": {"de": "Zehn"}, "labels": ["a"]}
{"title": "Eleven", "labels": [1.5]}
{"title": "Twelve", "labels": "b"}
"""
FAULTS = {
    2: "without labels",
    3: "not valid JSON",
    5: "without text",
    6: "is not a JSON object",
    7: "not UTF-8",
    8: "without the field 'title'",
    9: "without the field 'labels'",
    10: "a text is a string, not",
    11: "a label is a string or an integer, not 1.5",
}


def test_faults_are_counted_with_their_lines(tmp_path):
    (tmp_path / "f.jsonl").write_bytes(FAULTY)
    documents = read_documents(tmp_path / "f.jsonl", text="title", labels="labels")
    assert [(d.line, d.text["title"], d.labels) for d in documents] == [
        (1, "One", ["a"]),
        (7, "caf\ufffd", ["a"]),
        (12, "Twelve", ["b"]),
    ]
    report = documents.problems.report()
    assert all(str(tmp_path / "f.jsonl") in line for line in report)
    lines = {int(n) for line in report for n in re.search(r"\(lines? ([\d, ]+)\)", line)[1].split(",")}
    assert lines == set(FAULTS)
    assert f"{tmp_path / 'f.jsonl'}: 2 rows without labels: left out (lines 2, 9)" in report


@pytest.mark.parametrize("line", FAULTS)
def test_strict(tmp_path, line):
    """Each fault by itself is fatal."""
    lines = FAULTY.splitlines(keepends=True)
    (tmp_path / "f.jsonl").write_bytes(lines[0] + lines[line - 1])
    with pytest.raises(ValueError, match=rf"f\.jsonl, line 2: .*{FAULTS[line]}"):
        list(read_documents(tmp_path / "f.jsonl", text="title", labels="labels", strict=True))


def test_all_rows_of_an_incomplete_file(tmp_path):
    """For predictions every row counts, and labels do not."""
    (tmp_path / "f.jsonl").write_bytes(FAULTY)
    documents = list(read_documents(tmp_path / "f.jsonl", text="title", complete=False))
    assert [d.line for d in documents] == [1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12]
    assert documents[1].text == {"title": "Two"}
    assert documents[2].text == ""


def test_cells_that_are_missing(tmp_path):
    documents = read_documents(write(tmp_path / "d.csv", "title,labels\nOne text,a\nTwo\n"))
    assert [d.text["title"] for d in documents] == ["One text"]
    assert "another number of cells than the first line: left out (line 3)" in documents.problems.report()[0]
    documents = read_documents(write(tmp_path / "d.txt", "1\ta\tx y\n2\tb\tz\n" * 10 + "3\tc\n"))
    assert len(list(documents)) == 20
    assert "1 row without the cells id, labels and text: left out (line 21)" in documents.problems.report()[0]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "d.jsonl",
            '{"x": 1, "labels": ["a"]}',
            "which fields hold the text.*There are 'x', 'labels'.*--text",
        ),
        ("d.jsonl", '{"title": "One", "a": 1, "b": 2}', "which field holds the labels.*--labels"),
        ("d.csv", "a,a\n1,2\n", "two columns are called 'a'"),
        ("d.txt", "just some words\nand more\n", "not a file of documents in a known format.*--format"),
        ("d.txt", "2 3 4\n0 1:1\n", "not a file of documents"),
        ("d.csv", b"\xff\xfea\0".decode("utf-16"), "UTF-16"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, name, content, message):
    data = content.encode("utf-16") if "UTF-16" in message else content.encode()
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=message):
        list(read_documents(tmp_path / name))


def test_fields_that_are_not_there(tmp_path):
    path = write(tmp_path / "docs.jsonl", JSONL)
    with pytest.raises(ValueError, match=r"has no field 'tilte'\. There are 'id', 'title'"):
        read_documents(path, text="tilte,abstract")
    with pytest.raises(ValueError, match=r"has no field 'tags'"):
        read_documents(path, labels="tags")
    with pytest.raises(ValueError, match=r"has no field 'body'"):
        read_documents(path, text="body", complete=False)
    with pytest.raises(ValueError, match=r"format is 'xml', but must be"):
        read_documents(path, format="xml")
    with pytest.raises(FileNotFoundError):
        read_documents(tmp_path / "nowhere.jsonl")


def test_texts_alone(tmp_path):
    path = write(tmp_path / "new.txt", "One text\n\nAnother text: 1 of 2\n")
    assert [(d.line, d.text) for d in read_documents(path, complete=False)] == [
        (1, "One text"),
        (2, ""),
        (3, "Another text: 1 of 2"),
    ]
    with pytest.raises(ValueError, match="not a file of documents"):
        read_documents(write(tmp_path / "x.txt", "2 3\n1:0.5\n\n"), complete=False)


@pytest.mark.parametrize(
    ("separator", "cell", "labels"),
    [
        ("auto", "a, b|c", ["a, b", "c"]),
        ("auto", "a,b", ["a", "b"]),
        ("auto", "machine learning", ["machine learning"]),
        ("auto", "<http://x/1> <http://x/2>", ["http://x/1", "http://x/2"]),
        ("space", "E11 E12", ["E11", "E12"]),
        ("none", "a|b", ["a|b"]),
        (" / ", "a / b / a", ["a", "b"]),
    ],
)
def test_separators(tmp_path, separator, cell, labels):
    path = write(tmp_path / "d.jsonl", json.dumps({"title": "x", "labels": cell}))
    assert [d.labels for d in read_documents(path, label_separator=separator)] == [labels]


def test_rows_of_features_stay_what_they_were():
    for beginning, kind in (
        (b"2 3 4\n0,1 1:0.5\n", "xc"),
        (b"2 3\n1:0.5\n", "matrix"),
        (b"0,1 1:0.5 2:1\n", "svmlight"),
        (b"0,1\t1:0.5\t2:1e-3\n", "svmlight"),
        (b" 1:0.5\n", "svmlight"),
    ):
        assert sniff(beginning, "train.txt") == kind


# Names of labels


@pytest.mark.parametrize(
    "content",
    [
        "gnd:1\tBrick construction\tother name\ngnd:2\tHeating\n",
        '{"id": "gnd:1", "name": "Brick construction"}\n{"uri": "gnd:2", "prefLabel": "Heating"}\n',
    ],
)
def test_label_names(tmp_path, content):
    path = write(tmp_path / "names.gz", content, packed=True)
    assert read_label_names(path) == {"gnd:1": "Brick construction", "gnd:2": "Heating"}


def test_label_names_by_line(tmp_path):
    assert read_label_names(write(tmp_path / "names.txt", "bricks\nheating\n")) == {
        "0": "bricks",
        "1": "heating",
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no names"),
        ("a\tb\nc\n", "line 2: there is no tab"),
        ('{"id": 1}\n', "line 1: .* has no id or no name"),
        ('{"id": 1, "name": "x"}\n{\n', "line 2: not valid JSON"),
        ("a\tb\n\xff\t", "holds no names|not UTF-8"),
    ],
)
def test_label_names_that_cannot_be_read(tmp_path, content, message):
    (tmp_path / "names").write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=message):
        read_label_names(tmp_path / "names")


def test_it_is_public():
    assert datasets.Document._fields == ("line", "id", "text", "labels")
