"""The contract of every source whose input is files."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from mrflight.errors import InputError, JobError, SchemaMismatchError
from tests.support.jobs.source_contract import COLUMNS, SourceContract, batches, read, rows


class FileContract(SourceContract):
    """The tests of a format whose input is a file, a folder or a glob."""

    rows_are_needed = False
    """Whether a file needs rows to have a schema."""
    may_lack_columns = False
    shows_damage = True
    """Whether a truncated file is noticed; half of a text file is still a text file."""

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

    def test_columns_that_only_some_files_have(self, folder: Path) -> None:
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

    def test_columns_that_are_not_selected_may_differ(self, folder: Path) -> None:
        path = self.lay_out(folder, rows(0, 50), rows(50, 50).select(["id", "word", "seen"]))
        source = self.open(folder, path, columns=["word", "id"])
        assert read(source)["id"].to_pylist() == list(range(100))

    def test_incompatible_types_are_refused(self, folder: Path) -> None:
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

    def test_a_file_replaced_by_one_of_the_same_size_is_refused(self, folder: Path) -> None:
        source = self.open(folder, self.lay_out(folder, rows(0, 50)))
        path = Path(source.files[0])
        size, then = path.stat().st_size, path.stat().st_mtime_ns
        other = folder / "other"
        other.write_bytes(path.read_bytes())
        os.utime(other, ns=(then, then + 1))
        os.replace(other, path)
        self.assert_changed(source, source.splits[0], f"its {size:,} bytes were rewritten after")

    def test_a_folder_without_files_is_refused(self, folder: Path) -> None:
        (folder / "_SUCCESS").touch()
        with pytest.raises(InputError, match=rf"inputs\.visits\.path: the folder {folder} has"):
            self.open(folder, "visits")

    def test_the_error_for_a_damaged_file_names_it(self, folder: Path) -> None:
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
