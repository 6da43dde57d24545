"""What holds for every format that can be read; pyarrow reading whole files is the oracle."""

from __future__ import annotations

import bz2
import gzip
import io
import pickle
import random
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
import pytest
from deltalake import DeltaTable, WriterProperties, write_deltalake
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from mrflight.errors import (
    ColumnNotFoundError,
    InputError,
    JobError,
    JobFileError,
    SchemaMismatchError,
)
from mrflight.sources import open_source
from mrflight.sources.base import Source, Split
from mrflight.spec import CsvOptions, InputSpec

COLUMNS = ["id", "word", "share", "seen"]
WORDS = ["plain", "", "with, comma", 'with "quotes"', "çédille", "日本語", "tab\there", " blanks "]
LARGE = 1 << 30


def rows(start: int, count: int) -> pa.Table:
    """Rows of every kind that all formats hold; ``id`` counts them."""
    chosen = random.Random(start)
    return pa.table(
        {
            "id": pa.array(range(start, start + count), pa.int64()),
            "word": pa.array([chosen.choice(WORDS) for _ in range(count)], pa.string()),
            "share": pa.array(
                [chosen.choice([None, 0.25, -1e300, 3.5]) for _ in range(count)], pa.float64()
            ),
            "seen": pa.array([chosen.choice([True, False]) for _ in range(count)], pa.bool_()),
        }
    )


def open_at(folder: Path, path: str, split_bytes: int = LARGE, **spec: Any) -> Source:
    return open_source("visits", InputSpec(path=path, **spec), folder, {}, split_bytes)


def batches(source: Source) -> Iterator[pa.RecordBatch]:
    for split in source.splits:
        yield from source.reader.read(split)


def read(source: Source) -> pa.Table:
    return pa.Table.from_batches(batches(source), source.reader.schema)


class SourceContract(ABC):
    """A format, by how a table is written and read without us; each test is run for each format."""

    suffix: str
    spec: ClassVar[dict[str, Any]] = {}
    splits_files = True

    @abstractmethod
    def write(self, table: pa.Table, path: Path) -> None:
        """Write a file, in several row groups or batches where the format has them."""

    @abstractmethod
    def oracle(self, path: str, schema: pa.Schema) -> pa.Table:
        """All rows of a file of the input."""

    def lay_out(self, folder: Path, *tables: pa.Table) -> str:
        """Write the tables as files of an input in ``folder``; the path to name it by."""
        for i, table in enumerate(tables):
            self.write(table, folder / f"part-{i}{self.suffix}")
        return folder.name

    def open(self, folder: Path, path: str, split_bytes: int = LARGE, **spec: Any) -> Source:
        return open_at(folder.parent, path, split_bytes, **{**self.spec, **spec})

    def expected(self, source: Source, schema: pa.Schema | None = None) -> pa.Table:
        schema = schema or source.reader.schema
        return pa.concat_tables([self.oracle(file, schema) for file in source.files])

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "visits"
        folder.mkdir()
        return folder

    @pytest.mark.parametrize("split_bytes", [1, 17, 500, LARGE])
    def test_splits_tile_the_input_in_order(self, folder: Path, split_bytes: int) -> None:
        source = self.open(
            folder, self.lay_out(folder, rows(0, 40), rows(40, 1), rows(41, 20)), split_bytes
        )
        assert read(source).equals(self.expected(source))
        assert sorted(read(source)["id"].to_pylist()) == list(range(61))
        order = [(source.files.index(split.path), split.start) for split in source.splits]
        assert order == sorted(order)

    def test_a_large_file_becomes_several_splits(self, folder: Path) -> None:
        path = self.lay_out(folder, rows(0, 5000))
        size = self.open(folder, path).size_bytes
        source = self.open(folder, path, size // 5)
        assert (len(source.splits) >= 4) == self.splits_files
        assert read(source).equals(self.expected(source))

    @pytest.mark.parametrize("count", [1, 2, 3, 50])
    def test_pieces_tile_their_split(self, folder: Path, count: int) -> None:
        source = self.open(folder, self.lay_out(folder, rows(0, 300)), 4000)
        for split in source.splits:
            pieces = source.reader.pieces(split, count)
            assert 1 <= len(pieces) <= count
            whole = list(source.reader.read(split))
            cut = [batch for piece in pieces for batch in source.reader.read(piece)]
            schema = source.reader.schema
            assert pa.Table.from_batches(cut, schema).equals(pa.Table.from_batches(whole, schema))

    def test_all_batches_have_the_schema_and_rows(self, folder: Path) -> None:
        source = self.open(folder, self.lay_out(folder, rows(0, 200), rows(200, 50)), 500)
        for batch in batches(source):
            assert batch.schema.equals(source.reader.schema, check_metadata=True)
            assert batch.num_rows > 0
            batch.validate(full=True)

    def test_types_are_what_was_written(self, folder: Path) -> None:
        source = self.open(folder, self.lay_out(folder, rows(0, 200)))
        assert source.reader.schema.types == rows(0, 1).schema.types
        assert source.reader.schema.names == COLUMNS

    def test_batches_stay_valid_while_the_next_are_read(self, folder: Path) -> None:
        source = self.open(folder, self.lay_out(folder, rows(0, 2000)), 300)
        kept = list(batches(source))
        assert pa.Table.from_batches(kept).equals(self.expected(source))

    def test_a_read_can_be_repeated_anywhere(self, folder: Path) -> None:
        source = self.open(folder, self.lay_out(folder, rows(0, 300), rows(300, 20)), 2000)
        moved: list[tuple[Any, Split]] = [
            pickle.loads(pickle.dumps((source.reader, split))) for split in source.splits
        ]
        again = [batch for reader, split in moved for batch in reader.read(split)]
        assert pa.Table.from_batches(again).equals(read(source))
        assert read(source).equals(read(source))

    def test_what_travels_is_small_for_any_number_of_files(self, folder: Path) -> None:
        source = self.open(folder, self.lay_out(folder, *(rows(i, 1) for i in range(40))))
        assert len(source.files) == 40
        assert len(pickle.dumps(source.reader)) < 10_000
        assert max(len(pickle.dumps(split)) for split in source.splits) < 10_000

    @pytest.mark.parametrize("columns", [["word"], ["seen", "id"], list(reversed(COLUMNS))])
    def test_columns_are_selected_in_their_order(self, folder: Path, columns: list[str]) -> None:
        path = self.lay_out(folder, rows(0, 100), rows(100, 30))
        source = self.open(folder, path, 600, columns=columns)
        assert source.reader.schema.names == columns
        whole = self.open(folder, path)
        assert read(source).equals(self.expected(source, whole.reader.schema).select(columns))

    def test_a_column_that_is_not_there(self, folder: Path) -> None:
        path = self.lay_out(folder, rows(0, 10))
        with pytest.raises(ColumnNotFoundError, match="no column 'wrod'; it has 'id', 'word'"):
            self.open(folder, path, columns=["id", "wrod"])

    def test_columns_that_name_none_or_one_twice(self, folder: Path) -> None:
        path = self.lay_out(folder, rows(0, 10))
        with pytest.raises(JobFileError, match=r"inputs\.visits\.columns names no column"):
            self.open(folder, path, columns=[])
        with pytest.raises(JobFileError, match=r"inputs\.visits\.columns names 'id' twice"):
            self.open(folder, path, columns=["id", "word", "id"])

    def test_sizes_are_those_of_the_files(self, folder: Path) -> None:
        source = self.open(folder, self.lay_out(folder, rows(0, 500), rows(500, 10)), 700)
        assert source.size_bytes == sum(Path(file).stat().st_size for file in source.files)
        weight = sum(split.size_bytes for split in source.splits)
        assert source.size_bytes * 0.95 <= weight <= source.size_bytes

    def test_nothing_there(self, tmp_path: Path) -> None:
        with pytest.raises(InputError) as raised:
            open_at(tmp_path, "visits", **self.spec)
        assert str(raised.value) == f"inputs.visits.path: nothing matches {tmp_path}/visits"


class FileContract(SourceContract):
    """A format whose input is files, named one by one, by a folder or by a glob."""

    rows_are_needed = False
    """Whether a file without rows says nothing of its columns."""
    may_lack_columns = False
    shows_damage = True
    """Whether half a file is seen to be one: half of a text file is a text file."""

    def test_file_folder_and_glob(self, folder: Path) -> None:
        tables = [rows(0, 5), rows(5, 5), rows(10, 5)]
        self.lay_out(folder, *tables)
        (folder / "deep").mkdir()
        self.write(rows(15, 5), folder / "deep" / f"more{self.suffix}")
        for ignored in (f"_temporary{self.suffix}", f".hidden{self.suffix}", "_SUCCESS"):
            (folder / ignored).write_bytes(b"not to be read")
        everything = {
            "visits": [*range(15, 20), *range(15)],
            f"visits/part-1{self.suffix}": [*range(5, 10)],
            f"visits/*{self.suffix}": [*range(15)],
            f"visits/part-[02]{self.suffix}": [*range(5), *range(10, 15)],
            f"visits/**/*{self.suffix}": [*range(15, 20), *range(15)],
            "vis?ts": [*range(15, 20), *range(15)],
            str(folder / "deep"): [*range(15, 20)],
            f"file://{folder}/deep": [*range(15, 20)],
        }
        for path, ids in everything.items():
            source = self.open(folder, path)
            assert read(source)["id"].to_pylist() == ids, path
            assert list(source.files) == sorted(source.files)

    def test_columns_in_another_order_are_read_by_name(self, folder: Path) -> None:
        other = rows(50, 50).select(["seen", "share", "word", "id"])
        source = self.open(folder, self.lay_out(folder, rows(0, 50), other), 400)
        assert source.reader.schema.names == COLUMNS
        assert read(source).equals(self.expected(source))
        assert read(source)["id"].to_pylist() == list(range(100))

    def test_columns_that_are_missing_or_new(self, folder: Path) -> None:
        less = rows(50, 50).select(["id", "word", "seen"])
        for tables in ((rows(0, 50), less), (less, rows(0, 50))):
            path = self.lay_out(folder, *tables)
            if self.may_lack_columns:
                assert read(self.open(folder, path))["share"].null_count >= 50
                continue
            with pytest.raises(SchemaMismatchError) as raised:
                self.open(folder, path)
            assert f"{folder}/part-" in str(raised.value)
            assert "'share'" in str(raised.value)
            assert "inputs.visits.columns" in str(raised.value)

    def test_columns_that_nobody_reads_may_differ(self, folder: Path) -> None:
        path = self.lay_out(folder, rows(0, 50), rows(50, 50).select(["id", "word", "seen"]))
        source = self.open(folder, path, columns=["word", "id"])
        assert read(source)["id"].to_pylist() == list(range(100))

    def test_types_that_do_not_go_together(self, folder: Path) -> None:
        words = rows(50, 50).set_column(0, "id", pa.array(["a"] * 50))
        with pytest.raises(SchemaMismatchError) as raised:
            self.open(folder, self.lay_out(folder, rows(0, 50), words))
        for part in (f"{folder}/part-1", f"{folder}/part-0", "'id'", "int64", "string"):
            assert part in str(raised.value)

    def test_a_file_without_rows(self, folder: Path) -> None:
        path = self.lay_out(folder, rows(0, 0))
        if self.rows_are_needed:
            with pytest.raises(InputError):
                self.open(folder, path)
            return
        source = self.open(folder, path)
        assert len(source.splits) == 1
        assert list(batches(source)) == []
        assert source.reader.schema.names == COLUMNS

    def test_a_file_without_rows_among_others(self, folder: Path) -> None:
        source = self.open(folder, self.lay_out(folder, rows(0, 0), rows(0, 50), rows(0, 0)))
        assert read(source)["id"].to_pylist() == list(range(50))
        assert source.reader.schema == rows(0, 1).schema

    def test_a_folder_without_files(self, folder: Path) -> None:
        (folder / "_SUCCESS").touch()
        with pytest.raises(InputError, match=rf"inputs\.visits\.path: the folder {folder} holds"):
            self.open(folder, "visits")

    def test_a_damaged_file_is_named(self, folder: Path) -> None:
        path = folder / f"part-0{self.suffix}"
        self.write(rows(0, 500), path)
        whole = path.read_bytes()
        for damaged in (
            whole[: len(whole) // 2],
            b"\xff\xfe" + whole,
            whole[:3] + b"\x00\xff" * 40,
        ):
            path.write_bytes(damaged)
            if not self.shows_damage and damaged in whole:
                continue
            with pytest.raises(JobError) as raised:
                read(self.open(folder, "visits"))
            assert str(path) in str(raised.value)


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
        types = {field.name: field.type for field in schema}
        return pa.csv.read_csv(
            path,
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

    # Without names in the file there is only their order, and column_names says how many.
    test_columns_in_another_order_are_read_by_name = None
    test_columns_that_nobody_reads_may_differ = None

    def test_columns_that_are_missing_or_new(self, folder: Path) -> None:
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
        half = len(plain) // 2  # two members make one file
        return self.compress(plain[:half]) + self.compress(plain[half:])


class TestCsvBzip2(TestCsvGzip):
    suffix = ".csv.bz2"
    compress = staticmethod(bz2.compress)


class TestCsvZstandard(TestCsvGzip):
    suffix = ".csv.zst"
    compress = staticmethod(lambda data: pa.compress(data, codec="zstd", asbytes=True))

    def oracle(self, path: str, schema: pa.Schema) -> pa.Table:
        with pa.CompressedInputStream(path, "zstd") as stream:
            types = {field.name: field.type for field in schema}
            convert = pa.csv.ConvertOptions(column_types=types)
            return pa.csv.read_csv(stream, convert_options=convert).select(schema.names)


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
        parse = pa.json.ParseOptions(explicit_schema=schema)
        return pa.json.read_json(path, parse_options=parse).select(schema.names)


class TestJsonGzip(TestJson):
    suffix = ".json.gz"
    shows_damage = True
    splits_files = False

    def write(self, table: pa.Table, path: Path) -> None:
        path.write_bytes(gzip.compress(self.encode(table)))

    def oracle(self, path: str, schema: pa.Schema) -> pa.Table:
        with pa.CompressedInputStream(path, "gzip") as stream:
            parse = pa.json.ParseOptions(explicit_schema=schema)
            return pa.json.read_json(stream, parse_options=parse).select(schema.names)


class TestParquet(FileContract):
    suffix = ".parquet"

    def write(self, table: pa.Table, path: Path) -> None:
        pa.parquet.write_table(table, path, row_group_size=max(10, table.num_rows // 10))

    def oracle(self, path: str, schema: pa.Schema) -> pa.Table:
        return pa.parquet.ParquetFile(path).read(schema.names)


class TestArrowFile(FileContract):
    suffix = ".arrow"
    open_writer = staticmethod(pa.ipc.new_file)

    def write(self, table: pa.Table, path: Path) -> None:
        with pa.OSFile(str(path), "wb") as out, self.open_writer(out, table.schema) as writer:
            for batch in table.to_batches(max_chunksize=max(10, table.num_rows // 10)):
                writer.write(batch)

    def oracle(self, path: str, schema: pa.Schema) -> pa.Table:
        return pa.ipc.open_file(path).read_all().select(schema.names)


class TestArrowFileCompressed(TestArrowFile):
    suffix = ".feather"

    @staticmethod
    def open_writer(out: pa.NativeFile, schema: pa.Schema) -> pa.RecordBatchWriter:
        return pa.ipc.new_file(out, schema, options=pa.ipc.IpcWriteOptions(compression="zstd"))


class TestArrowStream(TestArrowFile):
    suffix = ".ipc"
    splits_files = False
    open_writer = staticmethod(pa.ipc.new_stream)

    def oracle(self, path: str, schema: pa.Schema) -> pa.Table:
        return pa.ipc.open_stream(path).read_all().select(schema.names)


class TestDelta(SourceContract):
    suffix = ""
    partition_by: ClassVar[list[str]] = []

    def write(self, table: pa.Table, path: Path) -> None:
        rows = WriterProperties(max_row_group_size=max(10, table.num_rows // 10))
        partition_by = self.partition_by
        write_deltalake(
            str(path), table, mode="append", partition_by=partition_by, writer_properties=rows
        )

    def lay_out(self, folder: Path, *tables: pa.Table) -> str:
        for table in tables:
            self.write(table, folder)
        return folder.name

    def oracle(self, path: str, schema: pa.Schema) -> pa.Table:
        return pa.parquet.ParquetFile(path).read(schema.names)

    def test_a_table_without_rows(self, folder: Path) -> None:
        DeltaTable.create(str(folder), rows(0, 0).schema)
        source = self.open(folder, "visits")
        assert len(source.splits) == 1
        assert list(batches(source)) == []
        assert source.reader.schema == rows(0, 0).schema


class TestDeltaPartitioned(TestDelta):
    partition_by: ClassVar = ["seen"]

    def oracle(self, path: str, schema: pa.Schema) -> pa.Table:
        stored = pa.parquet.ParquetFile(path).read([n for n in schema.names if n != "seen"])
        seen = pa.array(["seen=true" in path] * stored.num_rows, pa.bool_())
        return stored.append_column("seen", seen).select(schema.names)

    def test_a_table_without_rows(self, folder: Path) -> None:
        DeltaTable.create(str(folder), rows(0, 0).schema, partition_by=["seen"])
        assert list(batches(self.open(folder, "visits", columns=["seen"]))) == []


text = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=30)
one_line = text.map(lambda value: "".join(value.split("\n")).replace("\r", ""))


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
