"""Tests of inputs that skip bad rows: all others are read once, whatever the splits are."""

from __future__ import annotations

import csv
import gzip
import json
import re
import tempfile
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from mrflight.config.input_spec import InputSpec
from mrflight.config.text_options import CsvOptions
from mrflight.errors import BadRowError, InputError, JobFileError
from mrflight.sources import open_source
from mrflight.sources.chunk import CHUNK_BYTES
from mrflight.sources.csv_records import RecordSplitter
from mrflight.sources.packing import OPEN_BYTES
from tests.support.jobs.skipping import TYPES, Bad, Row, open_skipping, read
from tests.support.suite.examples import some_of
from tests.support.suite.messages import refused


def rows_of_csv(name: str, lines: Sequence[str]) -> tuple[list[Row], list[Bad]]:
    """Return the rows of csv without line ends in values, and those that cannot be read."""
    rows: list[Row] = []
    bad: list[Bad] = []
    for number, line in enumerate(lines, 2):
        if not line:
            continue
        values, *others = csv.reader([f"{line}\n"] * 2)  # one row if a quote is not closed
        if others and len(values) == 2 and re.fullmatch(r"\d*", values[0]):
            rows.append((int(values[0]) if values[0] else None, values[1]))
        else:
            bad.append((name, number, line))
    return rows, bad


def rows_of_json(name: str, lines: Sequence[str]) -> tuple[list[Row], list[Bad]]:
    """Return the rows of json, and those that cannot be read."""
    rows: list[Row] = []
    bad: list[Bad] = []
    for number, line in enumerate(lines, 1):
        try:
            value = json.loads(line) if line else {}
        except ValueError:
            value = None
        if isinstance(value, dict) and isinstance(value.get("n"), int | None):
            rows += [(value.get("n"), value.get("s"))] if line else []
        else:
            bad.append((name, number, line))
    return rows, bad


def joined(each: Iterable[tuple[list[Row], list[Bad]]]) -> tuple[list[Row], list[Bad]]:
    """Return the rows of several files together."""
    rows, bad = zip(*each, strict=True)
    return list(chain.from_iterable(rows)), list(chain.from_iterable(bad))


csv_lines = st.lists(st.text('012,"a', max_size=8) | st.just("1,a") | st.just("2,b"), max_size=40)
json_lines = st.lists(
    st.sampled_from(
        [
            '{"n":1,"s":"a"}',
            '{"s":"b"}',
            '{"n":"x"}',
            '{"n":2,"m":3}',
            '{"n":4}{"n":5}',
            '{"n":1,',
            "[]",
            "null",
            " null",
            "x",
            "",
        ]
    ),
    max_size=40,
)


@settings(max_examples=some_of(25))
@given(files=st.lists(csv_lines, min_size=1, max_size=3), split_bytes=st.integers(1, 60))
def test_every_good_row_of_csv_is_read_once(files: list[list[str]], split_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, lines in enumerate(files):
            (folder / f"{number}.csv").write_text("\n".join(["n,s", *lines]))
        expected = joined(rows_of_csv(f"{i}.csv", lines) for i, lines in enumerate(files))
        assert read(open_skipping(folder, "*.csv", split_bytes)) == expected
        assert read(open_skipping(folder, "*.csv"), 9 * OPEN_BYTES) == expected


@settings(max_examples=some_of(25))
@given(files=st.lists(json_lines, min_size=1, max_size=3), split_bytes=st.integers(1, 60))
def test_every_good_row_of_json_is_read_once(files: list[list[str]], split_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, lines in enumerate([["{}"], *files]):
            (folder / f"{number}.json").write_text("\n".join(lines))
        each = [rows_of_json(f"{i}.json", lines) for i, lines in enumerate(files, 1)]
        expected = joined([([(None, None)], []), *each])
        columns = list(TYPES)
        assert read(open_skipping(folder, "*.json", split_bytes, columns=columns)) == expected
        source = open_skipping(folder, "*.json", columns=columns)
        assert read(source, 9 * OPEN_BYTES) == expected


QUOTED = CsvOptions(newlines_in_values=True)


@settings(max_examples=some_of(25))
@given(
    options=st.sampled_from([QUOTED, structs.replace(QUOTED, comment="#")]),
    records=st.lists(
        st.sampled_from(
            [
                '1,"a\nb"\n',
                '2,"a""\r\n,b"\r\n',
                "3,c\n",
                "x,y\n",
                '"x\n",y\n',
                "4\n",
                '5,d"\n',
                "\n",
                '6,"\n# x"\n',
                '# 7 "x\n',
                '#"\r\n',
            ]
        ),
        max_size=20,
    ),
)
def test_every_good_record_with_line_ends_is_read_once(
    options: CsvOptions, records: list[str]
) -> None:
    good: list[Row] = []
    bad: list[Bad] = []
    line = 2
    for record in records:
        values = next(csv.reader(record.splitlines(keepends=True)))
        if len(values) == 2 and values[0].isdigit():
            good.append((int(values[0]), values[1]))
        elif values and not (options.comment and record.startswith("#")):
            bad.append(("a.csv", line, record.rstrip("\r\n")))
        line += record.count("\n")
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "a.csv").write_bytes(("n,s\n" + "".join(records)).encode())
        source = open_skipping(Path(name), "a.csv", csv=options)
        assert read(source) == (good, bad)


@pytest.mark.parametrize(
    ("options", "records"),
    [
        (CsvOptions(), [b'a"b,"c\n",\r\n', b'"""",x""\n', b"\n", b'"open\nto,the end\n']),
        (CsvOptions(escape="\\"), [b'\\"a,b\n', b'"c\\"\n"\r', b"d\\\ne\n", b"f\\\\\n", b"g"]),
        (CsvOptions(quote="", delimiter=";"), [b'"a;b\n', b'"\n', b'c"']),
        (CsvOptions(quote="'", delimiter="^", escape="]"), [b"'a]'\n'^b]\n\n", b"-^c\n"]),
        (CsvOptions(comment="#"), [b'#,"a\n', b'1,"\n#b"\n', b'1,#"\n', b'#"\r', b'#,"']),
        (CsvOptions(comment="^", escape="\\"), [b"^\\\n", b"\\^a,\\\nb\n"]),
    ],
    ids=["quotes", "escapes", "no quotes", "special characters of patterns", "comments", "both"],
)
def test_records_end_where_pyarrow_ends_them(options: CsvOptions, records: list[bytes]) -> None:
    assert RecordSplitter(options).split(b"".join(records)) == records


def test_chunks_end_between_records(tmp_path: Path) -> None:
    record = b'%06d,"' + b"x\n" * 200 + b'"\n'
    records = [record % n + b"bad\n" * (n % 1000 == 0) for n in range(10_000)]
    data = b"n,s\n" + b"".join(records)
    assert len(data) > CHUNK_BYTES / 2
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(data, 1))
    rows, bad = read(open_skipping(tmp_path, "a.csv.gz", csv=QUOTED))
    assert [n for n, _ in rows] == list(range(10_000))
    assert [data.split(b"\n")[line - 1] for _, line, _ in bad] == [b"bad"] * 10


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_lines_are_counted_from_the_start_of_a_large_file(tmp_path: Path, name: str) -> None:
    lines = [b"%d,%0200d" % (n, n) if n % 1000 else b"bad" for n in range(2, 12_002)]
    data = b"n,s\n" + b"\n".join(lines)
    (tmp_path / name).write_bytes(gzip.compress(data, 1) if name.endswith("gz") else data)
    source = open_skipping(tmp_path, name, len(data) // 5)
    for order in (source.splits, source.splits[::-1]):
        bad = read(structs.replace(source, splits=order))[1]
        assert sorted(line for _, line, _ in bad) == list(range(1000, 12_001, 1000))


def test_a_quote_that_is_never_closed_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'n,s\n1,x\n2,"' + b"y\n" * (CHUNK_BYTES * 3 // 4))
    with refused(BadRowError):
        read(open_skipping(tmp_path, "a.csv", csv=QUOTED))


def test_types_are_inferred_from_the_rows_that_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('n,s\nlong,line,here\n1,x\n"open\n2,y\n')
    assert read(open_skipping(tmp_path, "a.csv", types={})) == (
        [(1, "x"), (2, "y")],
        [("a.csv", 2, "long,line,here"), ("a.csv", 4, '"open')],
    )
    (tmp_path / "a.json").write_text('broken\n{"n":1,"s":"x"}\n')
    assert read(open_skipping(tmp_path, "a.json", types={})) == (
        [(1, "x")],
        [("a.json", 1, "broken")],
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (CsvOptions(allow_missing_columns=True), ([(1, "x"), (4, None)], [2, 4, 6])),
        (CsvOptions(comment="#"), ([(1, "x")], [2, 4, 5])),
        (CsvOptions(thousands=" ", comment="#"), ([(1200, "y"), (1, "x")], [4, 5])),
        (CsvOptions(encoding="utf-16", comment="#"), ([(1, "x")], [2, 4, 5])),
        (CsvOptions(encoding="latin-1", comment="#"), ([(1, "x")], [2, 4, 5])),
    ],
    ids=str,
)
def test_bad_rows_of_other_dialects(
    tmp_path: Path, options: CsvOptions, expected: tuple[list[Row], list[int]]
) -> None:
    text = "n,s\n1 200,y\n1,x\nü,z\n4\n#,\n"
    (tmp_path / "a.csv").write_text(text, encoding=options.encoding)
    rows, bad = read(open_skipping(tmp_path, "a.csv", csv=options))
    assert (rows, [line for _, line, _ in bad]) == (
        sorted(expected[0], key=rows.index),
        expected[1],
    )
    assert [text.split("\n")[line - 1] for _, line, _ in bad] == [each for _, _, each in bad]


def test_an_input_of_bad_rows_only_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,s\nx,1\ny\n")
    assert read(open_skipping(tmp_path, "a.csv")) == ([], [("a.csv", 2, "x,1"), ("a.csv", 3, "y")])


def test_a_bad_header_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,n\n1,2\n")
    with refused(InputError):
        open_skipping(tmp_path, "a.csv")


def test_json_whose_good_rows_contradict_each_other_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"m":1}\nbroken\n{"m":"x"}\n')
    with refused(BadRowError):
        open_skipping(tmp_path, "a.json", types={})


def test_formats_without_bad_rows_refuse_the_key(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"")
    with refused(JobFileError, "inputs.visits.bad_rows"):
        open_skipping(tmp_path, "a.parquet", types={})


def test_json_may_begin_with_a_byte_order_mark_and_an_empty_line(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf\n{"n":1,"s":"x"}\n')
    source = open_source("visits", InputSpec(path="a.json"), tmp_path, {}, 1000)
    assert read(source) == ([(1, "x")], [])


@pytest.mark.parametrize("word", ["", "ignore", "PERMISSIVE", "Skip"])
def test_words_that_are_probably_no_folder_are_refused(tmp_path: Path, word: str) -> None:
    (tmp_path / "a.csv").write_text("n,s\n1,2\n")
    with refused(JobFileError, "inputs.visits.bad_rows"):
        open_source("visits", InputSpec(path="a.csv", bad_rows=word), tmp_path, {}, 1000)
