"""The contract of sources for csv and newline-delimited json."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import shutil
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import ClassVar

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from mrflight.config.spec import CsvOptions
from mrflight.errors import JobFileError
from tests.support.file_contract import FileContract
from tests.support.source_contract import COLUMNS, open_at, read, rows


class CsvContract(FileContract):
    suffix = ".csv"
    shows_damage = False
    header = True
    delimiter = ","
    line_end = b"\n"

    def encode(self, table: pa.Table) -> bytes:
        out = io.BytesIO()
        options = pa.csv.WriteOptions(include_header=self.header, delimiter=self.delimiter)
        pa.csv.write_csv(table, out, options)
        return out.getvalue().replace(b"\n", self.line_end)

    def write(self, table: pa.Table, path: Path) -> None:
        path.write_bytes(self.encode(table))

    def oracle(self, path: str, schema: pa.Schema) -> pa.Table:
        return self.parsed(path, schema)

    def parsed(self, file: str | pa.NativeFile, schema: pa.Schema) -> pa.Table:
        types = {field.name: field.type for field in schema}
        return pa.csv.read_csv(
            file,
            pa.csv.ReadOptions(column_names=None if self.header else list(types)),
            pa.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            pa.csv.ConvertOptions(column_types=types),
        ).select(schema.names)


class TestCsv(CsvContract):
    pass


class TestCsvWithCarriageReturns(CsvContract):
    line_end = b"\r\n"


class TestCsvWithoutLastLineEnd(CsvContract):
    def write(self, table: pa.Table, path: Path) -> None:
        path.write_bytes(b"\xef\xbb\xbf" + self.encode(table).rstrip(b"\n"))


class TestCsvWithBlankLines(CsvContract):
    line_end = b"\n\n"


class TestTsv(CsvContract):
    suffix = ".tsv"
    delimiter = "\t"


class TestCsvWithoutHeader(CsvContract):
    header = False
    rows_are_needed = True
    spec: ClassVar = {"csv": CsvOptions(header=False, column_names=COLUMNS)}

    # Without a header the columns have only their order, and column_names sets their number.
    test_columns_in_another_order_are_read_by_name = None
    test_columns_that_are_not_selected_may_differ = None

    def test_columns_that_only_some_files_have(self, folder: Path) -> None:
        path = self.lay_out(folder, rows(0, 5), rows(5, 5).select(["id", "word"]))
        with pytest.raises(
            JobFileError, match=r"has 4 entries, but the first row of .*part-1\.csv"
        ):
            self.open(folder, path)


class TestCsvWithLineEndsInValues(CsvContract):
    splits_files = False
    spec: ClassVar = {"csv": CsvOptions(newlines_in_values=True)}

    def encode(self, table: pa.Table) -> bytes:
        return super().encode(table).replace(b"with, comma", b"with\nline, ends\n\n")


class TestCsvGzip(CsvContract):
    suffix = ".csv.gz"
    shows_damage = True
    splits_files = False
    compress: ClassVar[Callable[[bytes], bytes]] = staticmethod(gzip.compress)

    def encode(self, table: pa.Table) -> bytes:
        plain = super().encode(table)
        half = len(plain) // 2  # a file may have several gzip members
        return self.compress(plain[:half]) + self.compress(plain[half:])


class TestCsvBzip2(TestCsvGzip):
    suffix = ".csv.bz2"
    compress = staticmethod(bz2.compress)


class TestCsvZstandard(TestCsvGzip):
    suffix = ".csv.zst"
    compress = staticmethod(lambda data: pa.compress(data, codec="zstd", asbytes=True))

    def oracle(self, path: str, schema: pa.Schema) -> pa.Table:
        with pa.CompressedInputStream(path, "zstd") as stream:
            return self.parsed(stream, schema)


class TestJson(FileContract):
    suffix = ".jsonl"
    shows_damage = False
    rows_are_needed = True
    may_lack_columns = True

    def encode(self, table: pa.Table) -> bytes:
        return b"".join(
            msgspec.json.encode(row) + line_end
            for row, line_end in zip(table.to_pylist(), self.line_ends(), strict=False)
        )

    def line_ends(self) -> Iterator[bytes]:
        while True:
            yield from (b"\n", b"\r\n", b"\n\n", b" \n")

    def write(self, table: pa.Table, path: Path) -> None:
        path.write_bytes(self.encode(table))

    def oracle(self, path: str, schema: pa.Schema) -> pa.Table:
        return self.parsed(path, schema)

    def parsed(self, file: str | pa.NativeFile, schema: pa.Schema) -> pa.Table:
        parse = pa.json.ParseOptions(explicit_schema=schema)
        return pa.json.read_json(file, parse_options=parse).select(schema.names)


class TestJsonGzip(TestJson):
    suffix = ".json.gz"
    shows_damage = True
    splits_files = False

    def write(self, table: pa.Table, path: Path) -> None:
        path.write_bytes(gzip.compress(self.encode(table)))

    def oracle(self, path: str, schema: pa.Schema) -> pa.Table:
        with pa.CompressedInputStream(path, "gzip") as stream:
            return self.parsed(stream, schema)


def dialects() -> st.SearchStrategy[CsvOptions]:
    return st.builds(
        CsvOptions,
        delimiter=st.sampled_from([",", ";", "|", "\t"]),
        quote=st.sampled_from(['"', "'", ""]),
        escape=st.sampled_from([None, "\\"]),
        decimal=st.sampled_from([".", ","]),
        skip_rows=st.integers(0, 3),
        header=st.booleans(),
        null_values=st.sampled_from([None, ["-", "nil", ""]]),
        timestamp_formats=st.just(["%d.%m.%Y %H:%M:%S"]),
    ).filter(lambda it: it.delimiter != it.decimal and (it.quote or it.escape))


def in_dialect(table: pa.Table, options: CsvOptions, *, quotes_all: bool) -> bytes:
    """Return what Python's csv module writes, after lines to skip."""
    out = io.StringIO()
    quoting = csv.QUOTE_ALL if quotes_all else csv.QUOTE_MINIMAL
    rows = csv.writer(
        out,
        delimiter=options.delimiter,
        quotechar=options.quote or None,
        quoting=quoting if options.quote else csv.QUOTE_NONE,
        escapechar=options.escape,
        doublequote=options.escape is None,
        lineterminator="\n",
    )
    if options.header:
        rows.writerow(table.column_names)
    for word, share, seen in zip(*(column.to_pylist() for column in table.columns), strict=True):
        number = "" if share is None else str(share).replace(".", options.decimal)
        rows.writerow([word, number, f"{seen:%d.%m.%Y %H:%M:%S}"])
    return b"a \"line\", 'of' notes\n" * options.skip_rows + out.getvalue().encode()


text = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=30)
one_line = text.map(lambda value: "".join(value.split("\n")).replace("\r", ""))


@hypothesis_settings(max_examples=60)
@given(
    options=dialects(),
    values=st.lists(
        st.tuples(
            st.one_of(st.sampled_from(["-", "", "NA", 'a\\"b', "it's"]), one_line),
            st.none() | st.floats(-1e9, 1e9).map(lambda x: round(x, 3)),
            st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)),
        ),
        min_size=1,
        max_size=20,
    ),
    split_bytes=st.integers(1, 300),
    quotes_all=st.booleans(),
)
def test_any_dialect_split_anywhere(
    options: CsvOptions,
    values: list[tuple[str, float | None, datetime]],
    split_bytes: int,
    quotes_all: bool,
) -> None:
    options = msgspec.structs.replace(
        options, column_names=None if options.header else ["word", "share", "seen"]
    )
    table = pa.table(
        {
            "word": pa.array([word for word, _, _ in values], "string"),
            "share": pa.array([share for _, share, _ in values], "double"),
            "seen": pa.array([seen.replace(microsecond=0) for *_, seen in values], "timestamp[s]"),
        }
    )
    types = {field.name: str(field.type) for field in table.schema}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.csv")
        path.write_bytes(in_dialect(table, options, quotes_all=quotes_all))
        source = open_at(Path(folder), "x.csv", split_bytes, types=types, csv=options)
        nulls = options.null_values or ()
        words = [None if word in nulls else word for word in table["word"].to_pylist()]
        assert read(source) == table.set_column(0, "word", pa.array(words, "string"))


def test_a_messy_file_is_read_as_duckdb_reads_it(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(
        "Report of May\n\nday;city;share\n05.03.2024;'it''s';1,5\n06.03.2024;-;-\n"
    )
    options = CsvOptions(
        delimiter=";",
        quote="'",
        decimal=",",
        skip_rows=2,
        null_values=["-"],
        timestamp_formats=["%d.%m.%Y"],
    )
    found = read(open_at(tmp_path, "x.csv", 5, csv=options))
    assert str(found.schema.field("day").type) == "timestamp[us]"
    quote = "''''"
    oracle = duckdb.sql(
        f"select * from read_csv('{tmp_path}/x.csv', delim=';', quote={quote}, escape={quote}, "
        "skip=2, header=true, nullstr='-', decimal_separator=',', timestampformat='%d.%m.%Y', "
        "types={'day': 'timestamp', 'city': 'varchar', 'share': 'double'})"
    )
    assert [tuple(row.values()) for row in found.to_pylist()] == oracle.fetchall()


# As docs/reference/job-file.md lists them.
NULLS = ["", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND"]
NULLS += ["1.#QNAN", "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null"]


@pytest.mark.parametrize("strings", [False, True])
def test_what_is_null_by_default(tmp_path: Path, strings: bool) -> None:
    lines = [f"{text},{text}\n" for text in NULLS]
    (tmp_path / "x.csv").write_text("n,word\n1,a\n" + "".join(lines))
    options = CsvOptions(strings_can_be_null=strings)
    found = read(open_at(tmp_path, "x.csv", csv=options)).to_pydict()
    assert found["n"] == [1] + [None] * len(NULLS)
    assert found["word"] == ["a"] + ([None] * len(NULLS) if strings else NULLS)


@hypothesis_settings(max_examples=40)
@given(
    values=st.lists(st.tuples(st.integers(-99, 10**12), one_line), min_size=1, max_size=30),
    split_bytes=st.integers(1, 300),
    line_end=st.sampled_from([b"\n", b"\r\n"]),
    ends=st.booleans(),
    format=st.sampled_from(["csv", "json"]),
)
def test_any_text_split_anywhere(
    values: list[tuple[int, str]], split_bytes: int, line_end: bytes, ends: bool, format: str
) -> None:
    table = pa.table({"n": [n for n, _ in values], "word": [word for _, word in values]})
    contract = TestCsv() if format == "csv" else TestJson()
    data = contract.encode(table).replace(b"\r\n", b"\n").replace(b"\n", line_end)
    folder = Path(tempfile.mkdtemp())
    try:
        (folder / f"x.{format}").write_bytes(data if ends else data.rstrip(b"\r\n"))
        source = open_at(folder, f"x.{format}", split_bytes, types={"word": "string", "n": "int64"})
        assert read(source).equals(table)
    finally:
        shutil.rmtree(folder)
