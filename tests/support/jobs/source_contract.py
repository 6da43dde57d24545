"""The contract of every source; the oracle is pyarrow, which reads whole files."""

from __future__ import annotations

import os
import pickle
import random
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from mrflight.config.input_spec import InputSpec
from mrflight.errors import ColumnNotFoundError, InputError, JobFileError
from mrflight.sources import open_source
from mrflight.sources.base import Source, Split
from mrflight.sources.packing import OPEN_BYTES, pack

COLUMNS = ["id", "word", "share", "seen"]
WORDS = ["plain", "", "with, comma", 'with "quotes"', "çédille", "日本語", "tab\there", " blanks "]
LARGE = 1 << 30
ONE_LINE = st.text(st.characters(codec="utf-8", exclude_characters="\x00\r\n"), max_size=30)


def rows(start: int, count: int) -> pa.Table:
    """Return rows with types that all formats have; ``id`` counts them."""
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
    """The tests of one format; a subclass knows how to write and read a table without mrflight."""

    suffix: str
    spec: ClassVar[dict[str, Any]] = {}
    splits_files = True
    counts_rows = False
    """True if files have their number of rows."""

    @abstractmethod
    def write(self, table: pa.Table, path: Path) -> None:
        """Write a file, in several row groups or batches if the format has them."""

    @abstractmethod
    def oracle(self, path: str, schema: pa.Schema) -> pa.Table:
        """Return all rows of a file of the input."""

    def lay_out(self, folder: Path, *tables: pa.Table) -> str:
        """Write the tables as files of an input in ``folder``, and return the input's path."""
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
    def test_splits_cover_the_input_in_order(self, folder: Path, split_bytes: int) -> None:
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
        assert len(source.splits) >= 4 if self.splits_files else len(source.splits) == 1
        assert read(source).equals(self.expected(source))

    @pytest.mark.parametrize("columns", [None, ["word"]])
    def test_rows_are_counted_without_reading_them(
        self, folder: Path, columns: list[str] | None
    ) -> None:
        path = self.lay_out(folder, rows(0, 40), rows(40, 21), rows(61, 0))
        source = self.open(folder, path, 500, columns=columns)
        for split in source.splits:
            read = sum(batch.num_rows for batch in source.reader.read(split))
            assert source.reader.count_rows(split) == (read if self.counts_rows else None)

    @pytest.mark.parametrize("count", [1, 2, 3, 50])
    def test_divided_splits_cover_their_split(self, folder: Path, count: int) -> None:
        source = self.open(folder, self.lay_out(folder, rows(0, 300)), 4000)
        for split in source.splits:
            pieces = source.reader.divide(split, count)
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

    def test_packed_splits_have_the_same_rows_in_the_same_order(self, folder: Path) -> None:
        tables = [rows(i * 5, [3, 1, 5, 2][i % 4]) for i in range(20)]
        source = self.open(folder, self.lay_out(folder, *tables))
        expected = read(source)
        for weight in (1, 3 * OPEN_BYTES, 10 * OPEN_BYTES, LARGE):
            packs = list(pack(source.splits, weight))
            packed = [batch for split in packs for batch in source.reader.read(split)]
            assert pa.Table.from_batches(packed, source.reader.schema).equals(expected)
        (all_files,) = packs
        (joined,) = source.reader.read(all_files)
        joined.validate(full=True)
        assert pa.Table.from_batches([joined], source.reader.schema).equals(expected)
        encoded = pa.concat_tables(
            pa.Table.from_batches([batch]) for batch in source.reader.read_encoded(all_files)
        )
        assert encoded.cast(source.reader.schema).equals(expected)

    def test_a_changed_file_in_a_packed_split_is_refused(self, folder: Path) -> None:
        source = self.open(folder, self.lay_out(folder, *(rows(i * 5, 5) for i in range(9))))
        (packed,) = pack(source.splits, LARGE)
        for changed in (packed.pieces[0], packed.pieces[4], packed.pieces[8]):
            path = Path(changed.path)
            whole, before = path.read_bytes(), path.stat()
            path.write_bytes(whole + b"\n")
            with pytest.raises(InputError, match=f"{re.escape(changed.path)} changed while"):
                list(source.reader.read(packed))
            path.write_bytes(whole)
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def test_pickles_are_small_for_any_number_of_files(self, folder: Path) -> None:
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

    def test_a_missing_column_is_refused(self, folder: Path) -> None:
        path = self.lay_out(folder, rows(0, 10))
        with pytest.raises(ColumnNotFoundError, match="no column 'wrod'; did you mean 'word'"):
            self.open(folder, path, columns=["id", "wrod"])

    def test_empty_and_duplicate_columns_are_refused(self, folder: Path) -> None:
        path = self.lay_out(folder, rows(0, 10))
        with pytest.raises(JobFileError, match=r"inputs\.visits\.columns must not be empty"):
            self.open(folder, path, columns=[])
        with pytest.raises(JobFileError, match=r"inputs\.visits\.columns names 'id' twice"):
            self.open(folder, path, columns=["id", "word", "id"])

    def test_sizes_are_those_of_the_files(self, folder: Path) -> None:
        source = self.open(folder, self.lay_out(folder, rows(0, 500), rows(500, 10)), 700)
        assert source.size_bytes == sum(Path(file).stat().st_size for file in source.files)
        weight = sum(split.size_bytes for split in source.splits)
        assert source.size_bytes * 0.95 <= weight <= source.size_bytes

    def test_a_file_that_changed_since_it_was_found_is_refused(self, folder: Path) -> None:
        source = self.open(folder, self.lay_out(folder, rows(0, 500), rows(500, 10)))
        for split in source.splits:
            path = Path(split.path)
            whole = path.read_bytes()
            before = path.stat()
            for changed in (b"", whole[:-1], whole[: len(whole) // 2], whole + b"\n", whole * 2):
                path.write_bytes(changed)
                self.assert_changed(
                    source, split, f"it had {len(whole):,} bytes", f"has {len(changed):,} now"
                )
            path.unlink()
            self.assert_changed(source, split, f"it had {len(whole):,} bytes", "and is gone now")
            path.write_bytes(whole)
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert read(source).num_rows == 510

    def test_a_file_that_grows_while_it_is_read_is_refused(self, folder: Path) -> None:
        source = self.open(folder, self.lay_out(folder, rows(0, 500)))
        split = source.splits[0]
        reading = source.reader.read(split)
        next(reading)
        with open(split.path, "ab") as file:
            file.write(b"\n")
        with pytest.raises(InputError, match="changed while the job ran: it had"):
            list(reading)

    def assert_changed(self, source: Source, split: Split, *parts: str) -> None:
        """Assert that reading the split fails with these parts of a message about the change."""
        message = rf"{re.escape(split.path)} changed while the job ran: .*; run the job again"
        with pytest.raises(InputError, match=message) as raised:
            list(source.reader.read(split))
        for part in parts:
            assert part in str(raised.value)

    def test_a_path_that_matches_nothing_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError) as raised:
            open_at(tmp_path, "visits", **self.spec)
        assert str(raised.value) == f"inputs.visits.path: nothing matches {tmp_path}/visits"
