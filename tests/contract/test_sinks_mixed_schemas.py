"""No commit accepts part files of different schemas, as functions that infer types write them."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from mrflight.errors import OutputError, SchemaMismatchError
from mrflight.sinks.commit.base import Commit, Sink
from mrflight.sinks.parts.base import PartFile
from mrflight.storage.part_name import PartId
from tests.support.commands.leftovers import tree
from tests.support.tables.commits import commit_and_cleanup
from tests.support.tables.outputs import OLD, SCHEMA, Output


def part_of(sink: Sink, partition: int, rows: pa.Table) -> tuple[PartFile, ...]:
    return tuple(sink.part_writer.write(PartId(partition, 0), rows.schema, rows.to_batches()))


def commit(sink: Sink, *tables: pa.Table) -> None:
    """Commit the results of partitions 0, 1, ... as the driver does."""
    try:
        parts = [part for i, rows in enumerate(tables) for part in part_of(sink, i, rows)]
        commit_and_cleanup(sink, Commit(tuple(parts), tables[0].schema))
    finally:
        sink.abort()


def rows(n: pa.Array, k: list[str]) -> pa.Table:
    return pa.table({"n": n, "k": k})


NUMBERS = pa.array([4, 5], pa.int64())
TEXTS = pa.array(["x", "y"])
HALVES = pa.array([0.5, 1.5])
BY_K = pa.schema([("k", pa.string()), ("n", pa.int64())])


@pytest.mark.every_format
@pytest.mark.parametrize(
    ("others", "kinds"),
    [(TEXTS, "int64 in partition 0 and string"), (HALVES, "int64 in partition 0 and double")],
    ids=["string", "double"],
)
def test_types_that_differ_are_refused(output: Output, others: pa.Array, kinds: str) -> None:
    output.run(OLD, job_id="old")
    before = tree(output.base)
    first, other = rows(NUMBERS, ["a", "b"]), rows(others, ["c", "d"])
    expected = f"column 'n' is {kinds} in partition 2, .*; cast it in the function"
    with pytest.raises(SchemaMismatchError, match=expected):
        commit(output.open("overwrite"), first, first, other)
    assert tree(output.base) == before


@pytest.mark.every_format
def test_columns_that_differ_are_refused(output: Output) -> None:
    before = tree(output.base)
    more = rows(NUMBERS, ["a", "b"]).append_column("extra", pa.array([1, 2]))
    less = rows(NUMBERS, ["c", "d"])
    for tables in ((more, less), (less, more)):
        has = tables.index(more)
        expected = f"partition {has} has a column 'extra' and partition {1 - has} has none"
        with pytest.raises(SchemaMismatchError, match=expected):
            commit(output.open(), *tables)
        assert tree(output.base) == before


@pytest.mark.every_format
@pytest.mark.parametrize("null_is", [0, 1])
def test_a_column_without_values(output: Output, null_is: int) -> None:
    """A csv file has no types. In other formats a reader would find a type that it cannot cast."""
    before = tree(output.base)
    tables = [rows(NUMBERS, ["c", "d"])] * 2
    tables[null_is] = rows(pa.nulls(2), ["a", "b"])
    if output.format == "csv":
        commit(output.open(), *tables)
        typed = [("c", 4), ("d", 5)]
        assert output.read(BY_K) == [("a", None), ("b", None), *typed]
        return
    is_delta = output.format == "delta"
    error = OutputError if is_delta else SchemaMismatchError
    expected = "column 'n' is null: .*give it a type" if is_delta else "null .*cast it"
    with pytest.raises(error, match=expected):
        commit(output.open(), *tables)
    assert tree(output.base) == before


@pytest.mark.every_format
def test_layouts_that_are_stored_alike_are_accepted(output: Output) -> None:
    wide = pa.table([NUMBERS, TEXTS.cast(pa.large_string())], ["n", "k"])
    coded = pa.table([NUMBERS, TEXTS.dictionary_encode()], ["n", "k"])
    turned = rows(NUMBERS, ["x", "y"]).select(["k", "n"])
    commit(output.open(), wide, coded, turned)
    assert output.read() == sorted([(4, "x"), (5, "y")] * 3)


def test_the_schema_of_a_result_without_rows_is_ignored(output: Output) -> None:
    """The result of a function for no rows often has other types."""
    commit(output.open(), rows(TEXTS, ["a", "b"]).slice(0, 0), rows(NUMBERS, ["b", "c"]))
    assert output.read() == [(4, "b"), (5, "c")]
    if output.format == "delta":
        assert output.open("append").part_writer.schema.existing.types == SCHEMA.types  # type: ignore[attr-defined]


@pytest.mark.every_format
def test_rows_of_one_part_file_must_agree(output: Output) -> None:
    """Partitions that are written to one file come one after the other."""
    before = tree(output.base)
    batches = [*rows(TEXTS, ["a", "b"]).to_batches(), *rows(NUMBERS, ["a", "b"]).to_batches()]
    for tried in (batches, batches[::-1]):
        kinds = [str(batch.schema.field("n").type) for batch in tried]
        expected = f"column 'n' is {kinds[0]} in some and {kinds[1]} in others; cast it"
        with pytest.raises(SchemaMismatchError, match=re.escape(expected)):
            output.open().part_writer.write(PartId(0, 0), tried[0].schema, tried)
        assert tree(output.base) == before


@pytest.mark.every_format
def test_a_part_file_accepts_later_rows_without_values(output: Output) -> None:
    batches = [
        *rows(NUMBERS, ["a", "b"]).to_batches(),
        *rows(pa.nulls(2), ["c", "d"]).to_batches(),
    ]
    sink = output.open()
    parts = sink.part_writer.write(PartId(0, 0), batches[0].schema, batches)
    commit_and_cleanup(sink, Commit(tuple(parts), SCHEMA))
    assert output.read(BY_K) == [("a", 4), ("b", 5), ("c", None), ("d", None)]
