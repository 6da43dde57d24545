"""The rows of a table after a job in each mode, in every output format."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from mrflight.errors import OutputError
from mrflight.storage.part_name import PartId
from tests.support.commands.leftovers import tree
from tests.support.suite.messages import refused
from tests.support.tables.outputs import MODES, NEW, OLD, SCHEMA, Mode, Output


@pytest.mark.every_format
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_creates_a_table(output: Output, mode: Mode) -> None:
    assert output.run(NEW, mode) == (0 if output.format == "delta" else None)
    assert output.read() == NEW


@pytest.mark.every_format
def test_the_parts_have_the_final_names_and_no_partition_columns(output: Output) -> None:
    output.run([(1, "a"), (2, "a"), (3, "b")])
    suffix = "parquet" if output.format == "delta" else output.format
    folders = ("k=a/", "k=b/") if output.partition_by else ("", "")
    names = [f"{folder}part-0000{i}-0-new.{suffix}" for i, folder in enumerate(folders)]
    assert [str(p.relative_to(output.folder)) for p in output.parts("new")] == sorted(names)


def test_error_refuses_a_table_that_exists_and_leaves_it(output: Output) -> None:
    output.run(OLD, job_id="old")
    before = tree(output.base)
    with refused(OutputError, "output.table"):
        output.open("error")
    assert tree(output.base) == before


@pytest.mark.every_format
def test_append_adds_rows(output: Output) -> None:
    output.run(OLD, job_id="old")
    assert output.run(NEW, "append") == (1 if output.format == "delta" else None)
    assert output.read() == OLD + NEW


def test_overwrite_replaces_rows(output: Output) -> None:
    output.run(OLD, job_id="older")
    output.run(OLD, "append", job_id="old")
    assert output.run(NEW, "overwrite") == (2 if output.format == "delta" else None)
    assert output.read() == NEW
    if output.format != "delta":
        assert not output.parts("old") + output.parts("older")
        assert not list(output.folder.glob("k=b/*-old*"))


def test_overwrite_may_change_schema_and_partitioning(output: Output) -> None:
    output.run(OLD, job_id="old")
    other = replace(output, partition_by=() if output.partition_by else ("day",))
    schema = pa.schema([("value", pa.float64()), ("day", pa.string())])
    other.run([(0.5, "x"), (1.5, "y")], "overwrite", schema=schema)
    assert other.read(schema) == [(0.5, "x"), (1.5, "y")]


@pytest.mark.every_format
@pytest.mark.parametrize("mode", MODES)
def test_an_empty_result_creates_an_empty_table(output: Output, mode: Mode) -> None:
    output.run([], mode)
    assert output.read() == []
    output.run(NEW, "append", job_id="next")
    assert output.read() == NEW


def test_an_empty_append_leaves_the_rows(output: Output) -> None:
    output.run(OLD, job_id="old")
    assert output.run([], "append") == (1 if output.format == "delta" else None)
    assert output.read() == OLD


def test_an_empty_overwrite_empties_the_table(output: Output) -> None:
    output.run(OLD, job_id="old")
    output.run([], "overwrite")
    assert output.read() == []


def test_no_file_is_written_without_rows(output: Output) -> None:
    writer = output.open().part_writer
    empty = pa.RecordBatch.from_pylist([], schema=SCHEMA)
    assert writer.write(PartId(0, 0), SCHEMA, [empty, empty]) == []
    assert tree(output.base) == {}
