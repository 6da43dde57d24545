"""The contract of sources for csv and newline-delimited json."""

from __future__ import annotations

import bz2
import gzip
import io
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from mrflight.config.text_options import CsvOptions
from mrflight.errors import JobFileError
from tests.support.jobs.file_contract import FileContract
from tests.support.jobs.source_contract import COLUMNS, ONE_LINE, open_at, read, rows
from tests.support.suite.examples import some_of

OF_THE_FORMAT = (
    "test_rows_are_counted_without_reading_them",
    "test_batches_stay_valid_while_the_next_are_read",
    "test_a_changed_file_in_a_packed_split_is_refused",
    "test_pickles_are_small_for_any_number_of_files",
    "test_columns_are_selected_in_their_order",
    "test_a_missing_column_is_refused",
    "test_empty_and_duplicate_columns_are_refused",
    "test_sizes_are_those_of_the_files",
    "test_a_file_that_changed_since_it_was_found_is_refused",
    "test_a_file_that_grows_while_it_is_read_is_refused",
    "test_a_path_that_matches_nothing_is_refused",
    "test_file_folder_and_glob",
    "test_columns_in_another_order_are_read_by_name",
    "test_columns_that_only_some_files_have",
    "test_columns_that_are_not_selected_may_differ",
    "test_incompatible_types_are_refused",
    "test_a_file_replaced_by_one_of_the_same_size_is_refused",
    "test_a_folder_without_files_is_refused",
)
"""What does not depend on the bytes between the rows, nor on the kind of compression."""


def encoding(contract: type[FileContract]) -> type[FileContract]:
    """Leave what is so in the whole format to the class that has its usual encoding."""
    for name in OF_THE_FORMAT:
        assert callable(getattr(contract, name)), f"there is no {name}"
        setattr(contract, name, None)
    return contract


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


@encoding
class TestCsvWithCarriageReturns(CsvContract):
    line_end = b"\r\n"


@encoding
class TestCsvWithoutLastLineEnd(CsvContract):
    def write(self, table: pa.Table, path: Path) -> None:
        path.write_bytes(b"\xef\xbb\xbf" + self.encode(table).rstrip(b"\n"))


@encoding
class TestCsvWithBlankLines(CsvContract):
    line_end = b"\n\n"


@encoding
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


@encoding
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


@encoding
class TestCsvBzip2(TestCsvGzip):
    suffix = ".csv.bz2"
    compress = staticmethod(bz2.compress)


@encoding
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


@encoding
class TestJsonGzip(TestJson):
    suffix = ".json.gz"
    shows_damage = True
    splits_files = False

    def write(self, table: pa.Table, path: Path) -> None:
        path.write_bytes(gzip.compress(self.encode(table)))

    def oracle(self, path: str, schema: pa.Schema) -> pa.Table:
        with pa.CompressedInputStream(path, "gzip") as stream:
            return self.parsed(stream, schema)


@hypothesis_settings(max_examples=some_of(40))
@given(
    values=st.lists(st.tuples(st.integers(-99, 10**12), ONE_LINE), min_size=1, max_size=30),
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
