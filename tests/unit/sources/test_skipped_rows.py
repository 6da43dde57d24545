"""Tests of inputs that skip bad rows: all others are read once, whatever the splits are."""

from __future__ import annotations

import csv
import gzip
import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.config.spec import CsvOptions, InputSpec
from mrflight.errors import BadRowError, InputError, JobFileError
from mrflight.sources import open_source
from mrflight.sources.bad_rows import BadRowLog
from mrflight.sources.base import Source
from mrflight.sources.csv_records import RecordSplitter
from mrflight.sources.lines import CHUNK_BYTES
from mrflight.sources.packing import OPEN_BYTES, pack

TYPES = {"n": "int64", "s": "string"}
Row = tuple[int | None, str | None]


def open_skipping(folder: Path, path: str, split_bytes: int = 1 << 30, **spec: Any) -> Source:
    given = InputSpec(path=path, bad_rows="skip", **{"types": TYPES, **spec})
    return open_source("visits", given, folder, {}, split_bytes)


def read(source: Source, pack_weight: int = 0) -> tuple[list[Row], int]:
    """Return the rows of a source, and how many were skipped."""
    log = BadRowLog()
    reader = source.reader.with_bad_rows(log)
    splits = pack(source.splits, pack_weight) if pack_weight else source.splits
    batches = [batch for split in splits for batch in reader.read(split)]
    rows = [(row["n"], row["s"]) for batch in batches for row in batch.to_pylist()]
    return rows, log.rows


def rows_of_csv(lines: Sequence[str]) -> tuple[list[Row], int]:
    """Return the rows of csv without line ends in values, and how many cannot be read."""
    rows: list[Row] = []
    filled = [line for line in lines if line]
    for line in filled:
        values, *others = csv.reader([f"{line}\n"] * 2)  # one row if a quote is not closed
        if others and len(values) == 2 and re.fullmatch(r"\d*", values[0]):
            rows.append((int(values[0]) if values[0] else None, values[1]))
    return rows, len(filled) - len(rows)


def rows_of_json(lines: Sequence[str]) -> tuple[list[Row], int]:
    rows: list[Row] = []
    filled = [line for line in lines if line]
    for line in filled:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            n, s = value.get("n"), value.get("s")
            if isinstance(n, int | None) and isinstance(s, str | None):
                rows.append((n, s))
    return rows, len(filled) - len(rows)


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
            "x",
            "",
        ]
    ),
    max_size=40,
)


@settings(max_examples=25)
@given(files=st.lists(csv_lines, min_size=1, max_size=3), split_bytes=st.integers(1, 60))
def test_every_good_row_of_csv_is_read_once(files: list[list[str]], split_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, lines in enumerate(files):
            (folder / f"{number}.csv").write_text("\n".join(["n,s", *lines]))
        expected = rows_of_csv([line for lines in files for line in lines])
        assert read(open_skipping(folder, "*.csv", split_bytes)) == expected
        assert read(open_skipping(folder, "*.csv"), 9 * OPEN_BYTES) == expected


@settings(max_examples=25)
@given(files=st.lists(json_lines, min_size=1, max_size=3), split_bytes=st.integers(1, 60))
def test_every_good_row_of_json_is_read_once(files: list[list[str]], split_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, lines in enumerate([["{}"], *files]):
            (folder / f"{number}.json").write_text("\n".join(lines))
        rows, bad = rows_of_json([line for lines in files for line in lines])
        expected = [(None, None), *rows], bad
        columns = list(TYPES)
        assert read(open_skipping(folder, "*.json", split_bytes, columns=columns)) == expected
        source = open_skipping(folder, "*.json", columns=columns)
        assert read(source, 9 * OPEN_BYTES) == expected


QUOTED = CsvOptions(newlines_in_values=True)


@settings(max_examples=25)
@given(
    st.lists(
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
            ]
        ),
        max_size=20,
    )
)
def test_every_good_record_with_line_ends_is_read_once(records: list[str]) -> None:
    values = csv.reader("".join(records).splitlines(keepends=True))
    filled = [each for each in values if each]
    good = [(int(n), s) for n, s in (e for e in filled if len(e) == 2) if n.isdigit()]
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "a.csv").write_bytes(("n,s\n" + "".join(records)).encode())
        source = open_skipping(Path(name), "a.csv", csv=QUOTED)
        assert read(source) == (good, len(filled) - len(good))


@pytest.mark.parametrize(
    ("options", "records"),
    [
        (CsvOptions(), [b'a"b,"c\n",\r\n', b'"""",x""\n', b"\n", b'"open\nto,the end\n']),
        (CsvOptions(escape="\\"), [b'\\"a,b\n', b'"c\\"\n"\r', b"d\\\ne\n", b"f\\\\\n", b"g"]),
        (CsvOptions(quote="", delimiter=";"), [b'"a;b\n', b'"\n', b'c"']),
        (CsvOptions(quote="'", delimiter="^", escape="]"), [b"'a]'\n'^b]\n\n", b"-^c\n"]),
    ],
    ids=["quotes", "escapes", "no quotes", "special characters of patterns"],
)
def test_records_end_where_pyarrow_ends_them(options: CsvOptions, records: list[bytes]) -> None:
    assert RecordSplitter(options).split(b"".join(records)) == records


def test_chunks_end_between_records(tmp_path: Path) -> None:
    record = b'%06d,"' + b"x\n" * 200 + b'"\n'
    records = (record % n + b"bad\n" * (n % 1000 == 0) for n in range(10_000))
    data = b"n,s\n" + b"".join(records)
    assert len(data) > CHUNK_BYTES / 2
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(data, 1))
    rows, bad = read(open_skipping(tmp_path, "a.csv.gz", csv=QUOTED))
    assert [n for n, _ in rows] == list(range(10_000))
    assert bad == 10


def test_a_quote_that_is_never_closed_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'n,s\n1,x\n2,"' + b"y\n" * (CHUNK_BYTES * 3 // 4))
    with pytest.raises(BadRowError, match=r"a\.csv has a row of more than 4 MiB; a quote before"):
        read(open_skipping(tmp_path, "a.csv", csv=QUOTED))


def test_types_are_inferred_from_the_rows_that_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('n,s\nlong,line,here\n1,x\n"open\n2,y\n')
    assert read(open_skipping(tmp_path, "a.csv", types={})) == ([(1, "x"), (2, "y")], 2)
    (tmp_path / "a.json").write_text('broken\n{"n":1,"s":"x"}\n')
    assert read(open_skipping(tmp_path, "a.json", types={})) == ([(1, "x")], 1)


def test_an_input_of_bad_rows_only_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,s\nx,1\ny\n")
    assert read(open_skipping(tmp_path, "a.csv")) == ([], 2)


def test_a_bad_header_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,n\n1,2\n")
    with pytest.raises(InputError, match="names column 'n' twice"):
        open_skipping(tmp_path, "a.csv")


def test_json_whose_good_rows_contradict_each_other_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"m":1}\nbroken\n{"m":"x"}\n')
    with pytest.raises(BadRowError, match=r"line 3: field 'm' has the type string, but number"):
        open_skipping(tmp_path, "a.json", types={})


def test_formats_without_bad_rows_refuse_the_key(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(JobFileError, match=r"inputs\.visits\.bad_rows is only for csv and json"):
        open_skipping(tmp_path, "a.parquet", types={})


def test_json_may_begin_with_a_byte_order_mark_and_an_empty_line(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf\n{"n":1,"s":"x"}\n')
    source = open_source("visits", InputSpec(path="a.json"), tmp_path, {}, 1000)
    assert read(source) == ([(1, "x")], 0)
