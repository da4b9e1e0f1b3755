"""Documents from files: formats, their detection by content and name, and faults with their lines."""

import gzip
import io
import json
import re
import sys
import time
import tracemalloc

import pytest

from bonsai_xmc import datasets
from bonsai_xmc._base.sniff import sniff
from bonsai_xmc.datasets import read_documents, read_label_names
from helpers import says

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
def test_json_lines_are_read_by_field(tmp_path, packed):
    documents = read_documents(write(tmp_path / "docs.jsonl", JSONL, packed))
    assert documents.kind == "jsonl"
    assert (documents.fields, documents.label_field) == (("title", "abstract"), "subjects")
    assert rows(documents) == EXPECTED
    assert documents.problems.report() == []


def test_a_json_array_is_read_like_json_lines(tmp_path):
    documents = read_documents(write(tmp_path / "docs.json", json.dumps(RECORDS, indent=1)))
    assert documents.kind == "json"
    assert rows(documents) == EXPECTED
    with pytest.raises(ValueError, match=r"bad\.json is not a JSON array"):
        read_documents(write(tmp_path / "bad.json", "[1, 2"))


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_tables_are_read_by_column_with_or_without_a_byte_order_mark(tmp_path, kind, mark):
    documents = read_documents(write(tmp_path / f"docs.{kind}.gz", mark + TABLES[kind], packed=True))
    assert documents.kind == kind
    assert rows(documents) == EXPECTED
    assert documents.separator == {"csv": ";", "tsv": "|"}[kind]


def test_tables_are_recognised_by_content(tmp_path):
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
def test_formats_without_fields_give_texts_and_labels(tmp_path, kind, ends):
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
    """A first row that does not name columns is reported."""
    path = write(tmp_path / "docs.tsv", f"{BRICK}\ta b\n{PUMP}\tc\n")
    with pytest.raises(ValueError, match=r"which field holds the labels\? There are 'Old brick houses"):
        read_documents(path)


def test_parquet_is_read_and_damaged_files_are_rejected(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(RECORDS), tmp_path / "docs.parquet")
    assert rows(read_documents(tmp_path / "docs.parquet")) == EXPECTED
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(ValueError, match=r"bad\.parquet is not a valid Parquet file"):
        read_documents(tmp_path / "bad.parquet")
    whole = (tmp_path / "docs.parquet").read_bytes()
    (tmp_path / "bad.parquet").write_bytes(whole[:4] + b"\xff" * 40 + whole[44:])  # its pages, not its footer
    with pytest.raises(ValueError, match=r"bad\.parquet is not a valid Parquet file"):
        list(read_documents(tmp_path / "bad.parquet"))


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


def test_documents_are_read_as_a_stream(monkeypatch):
    """The first documents are available before the input ends."""
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

DEEP = 800  # brackets: json reads them, but a function that recurses at each of them fails
NESTED = b"[" * DEEP + b"]" * DEEP
TOO_DEEP = b"[" * 100_000

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
{"title": "Thirteen", "labels": ["b\\ud800"]}
{"title": "Fourteen", "labels": %s}
{"title": %s, "labels": ["a"]}
{"title": "Sixteen", "labels": ["a"], "more": %s}
""" % (NESTED, NESTED, TOO_DEEP)
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
    13: "a label is 'b.ud800', which is not valid Unicode",
    14: "a label is a string or an integer, not ",
    15: "a text is a string, not ",
    16: "not valid JSON",
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
def test_strict_makes_each_fault_fatal(tmp_path, line):
    """Each fault alone is fatal."""
    lines = FAULTY.splitlines(keepends=True)
    (tmp_path / "f.jsonl").write_bytes(lines[0] + lines[line - 1])
    with pytest.raises(ValueError, match=rf"^[^,]*f\.jsonl, line 2: [^,]*{FAULTS[line]}"):
        list(read_documents(tmp_path / "f.jsonl", text="title", labels="labels", strict=True))


def test_all_rows_of_an_incomplete_file(tmp_path):
    """Predictions need all rows and no labels."""
    (tmp_path / "f.jsonl").write_bytes(FAULTY)
    documents = list(read_documents(tmp_path / "f.jsonl", text="title", complete=False))
    assert [d.line for d in documents] == [1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
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
        ("d.csv", "a,a\n1,2\n", "2 columns are called 'a'"),
        ("d.txt", "just some words\nand more\n", "not a file of documents in a known format.*--format"),
        ("d.txt", "2 3 4\n0 1:1\n", "not a file of documents"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content.encode())
    with pytest.raises(ValueError, match=message):
        list(read_documents(tmp_path / name))


def test_fields_that_are_not_there(tmp_path):
    path = write(tmp_path / "docs.jsonl", JSONL)
    with pytest.raises(ValueError, match=r"has no field 'tilte'; did you mean 'title'\?"):
        read_documents(path, text="tilte,abstract")
    with pytest.raises(ValueError, match=r"has no field 'tags'"):
        read_documents(path, labels="tags")
    with pytest.raises(ValueError, match=r"has no field 'body'"):
        read_documents(path, text="body", complete=False)
    with pytest.raises(ValueError, match=r"format is 'xml', but must be"):
        read_documents(path, format="xml")
    with pytest.raises(FileNotFoundError):
        read_documents(tmp_path / "nowhere.jsonl")


def test_incomplete_reading_takes_lines_as_texts(tmp_path):
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
def test_label_separators_are_detected_or_given(tmp_path, separator, cell, labels):
    path = write(tmp_path / "d.jsonl", json.dumps({"title": "x", "labels": cell}))
    assert [d.labels for d in read_documents(path, label_separator=separator)] == [labels]


def test_rows_of_features_are_not_taken_for_documents():
    for beginning, kind in (
        (b"2 3 4\n0,1 1:0.5\n", "xc"),
        (b"2 3\n1:0.5\n", "matrix"),
        (b"0,1 1:0.5 2:1\n", "svmlight"),
        (b"0,1\t1:0.5\t2:1e-3\n", "svmlight"),
        (b" 1:0.5\n", "svmlight"),
    ):
        assert sniff(beginning, "train.txt") == kind


ANNIF = "An old book\thttp://x/arabiska\nTwo\tarabiska; kemi\nThree\ta b\nFour\ta|b\nFive\t<u:a>, <u:b>\n"


def test_other_separators_than_those_of_annif(tmp_path):
    """Labels such as `arabiska;` are left out and reported."""
    path = write(tmp_path / "d.tsv", ANNIF)
    documents = read_documents(path, format="annif")
    assert [(d.line, d.labels) for d in documents] == [(1, ["http://x/arabiska"]), (3, ["a", "b"])]
    assert documents.problems.report() == [
        f"{path}: 1 row with labels that '{mark}' separates, not blanks: left out, see --label-separator "
        f"(line {line})"
        for mark, line in ((";", 2), ("|", 4), (",", 5))
    ]
    with says(
        f"{path}, line 2: labels are separated by blanks here, but there is 'arabiska;'; if ';' separates "
        "them, pass --label-separator ';'"
    ):
        list(read_documents(path, format="annif", strict=True))
    given = {d.line: d.labels for d in read_documents(path, format="annif", label_separator=";")}
    assert given[2] == ["arabiska", "kemi"]
    assert given[3] == ["a b"]
    taken = {d.line: d.labels for d in read_documents(path, format="annif", label_separator="space")}
    assert taken[2] == ["arabiska;", "kemi"]


def test_formats_that_fix_how_labels_are_separated(tmp_path):
    path = write(tmp_path / "d.txt", "__label__a one two\n")
    with says(f"{path} is a file of fasttext, a format that fixes how labels are separated"):
        read_documents(path, label_separator=";")


# Very long lines


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["d.jsonl", "d.tsv", "d.csv", "d.txt"])
def test_a_very_long_line_is_an_error(tmp_path, name, packed):
    """The line is not read to its end."""
    first = {
        "d.jsonl": b'{"title": "One two", "labels": ["a"]}',
        "d.tsv": b"title\tlabels",
        "d.csv": b"title,labels",
        "d.txt": b"__label__a one",
    }[name]
    content = first + b"\n" + b"x" * 3_000_000 + b"\n"
    path = tmp_path / (name + ".gz" * packed)
    path.write_bytes(gzip.compress(content) if packed else content)
    message = (
        f"{path}, line 2: it is longer than 100,000 bytes; if this is intended, allow more by --max-line "
        "(max_line=)"
    )
    for strict in (False, True):
        with says(message):
            list(read_documents(path, labels="labels", strict=strict, max_line=100_000))
    fault = list(read_documents(path, text="title", labels="labels", complete=False, max_line=3_000_001))
    assert [document.line for document in fault][-1] == 2


def test_a_very_long_line_takes_little_memory(tmp_path):
    (tmp_path / "d.jsonl.gz").write_bytes(gzip.compress(b"{" + b" " * 100_000_000, 1))
    tracemalloc.start()
    with pytest.raises(ValueError, match="line 1: it is longer than 1,000,000 bytes"):
        read_documents(tmp_path / "d.jsonl.gz", max_line=1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000
    with pytest.raises(ValueError, match="line 1: it is longer than 67,108,864 bytes"):
        read_documents(tmp_path / "d.jsonl.gz")


def test_a_quote_that_is_not_closed(tmp_path):
    rows = "".join(f"Title {i} of a book,a\n" for i in range(1000))
    path = write(tmp_path / "d.csv", f'title,labels\nOne two,a\n"Two three,b\n{rows}')
    with says("line 3: the row that begins there (is a quote not closed?) is longer than 10,000 bytes"):
        list(read_documents(path, max_line=10_000))
    whole = write(tmp_path / "e.csv", f'title,labels\nOne two,a\n{rows}"Two\nthree",b\n')
    assert len(list(read_documents(whole, max_line=100))) == 1002
    with pytest.raises(ValueError, match="max_line is 0, but must be at least 1"):
        read_documents(whole, max_line=0)


def test_a_very_long_line_of_label_names_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("bonsai_xmc.datasets._documents.problems.MAX_LINE", 1000)
    path = write(tmp_path / "names.tsv", "a\tb\nc\t" + "d" * 2000)
    with pytest.raises(ValueError, match=r"names.tsv, line 2: it is longer than 1,000 bytes$"):
        read_label_names(path)


def test_a_header_of_very_many_columns(tmp_path):
    names = [f"c{i}" for i in range(100_000)]
    path = write(tmp_path / "d.csv", "title," + ",".join(names) + "\n" + "a b" + "," * len(names) + "\n")
    begin = time.process_time()
    with pytest.raises(ValueError, match=r"which field holds the labels\? .* 'c48' and 99,951 more"):
        read_documents(path)
    assert time.process_time() - begin < 10  # comparing each name with each takes minutes


# Names of labels


@pytest.mark.parametrize(
    "content",
    [
        "gnd:1\tBrick construction\tother name\ngnd:2\tHeating\n",
        '{"id": "gnd:1", "name": "Brick construction"}\n{"uri": "gnd:2", "prefLabel": "Heating"}\n',
    ],
)
def test_label_names_are_read_from_tsv_and_json_lines(tmp_path, content):
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
        ('{"id": 1, "name": "x"}\n{"id": null, "name": "y"}\n', "line 2: .* has no id or no name"),
        ('{"id": 1, "name": null}\n', "line 1: .* has no id or no name"),
        ('{"id": true, "name": "x"}\n', "line 1: a label is a string or an integer, not True"),
        ('{"id": "a\\ud800", "name": "x"}\n', "line 1: a label is 'a.ud800', which is not valid Unicode"),
        ('{"id": "a", "name": "x\\ud800"}\n', "line 1: the label 'a' has the text 'x.ud800', which is not"),
        ('{"id": "a", "name": %s}\n' % ("[" * 800 + "]" * 800), r"line 1: a text is a string, not \["),
        ('{"id": %s, "name": "x"}\n' % ("[" * 800 + "]" * 800), "line 1: a label is a string or an integer"),
        ("a\tb\n\xff\t", "holds no names|not UTF-8"),
    ],
)
def test_label_names_that_cannot_be_read(tmp_path, content, message):
    (tmp_path / "names").write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=message):
        read_label_names(tmp_path / "names")


def test_document_is_public_with_its_four_fields():
    assert datasets.Document._fields == ("line", "id", "text", "labels")
