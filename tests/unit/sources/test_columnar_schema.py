"""The schema of Parquet and Arrow inputs: files that agree, differ in layout, or do not agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from mrflight.config.input_spec import InputSpec
from mrflight.errors import InputError, JobFileError, SchemaMismatchError
from mrflight.sources import open_source
from mrflight.sources.base import Source
from tests.support.suite.messages import refused


def rows(source: Source) -> list[dict[str, Any]]:
    batches = [batch for split in source.splits for batch in source.reader.read(split)]
    result: list[dict[str, Any]] = pa.Table.from_batches(batches, source.reader.schema).to_pylist()
    return result


def write(path: Path, **columns: pa.Array) -> None:
    pa.parquet.write_table(pa.table(columns), path)


def open_folder(folder: Path, **spec: Any) -> Source:
    return open_source("visits", InputSpec(path=str(folder), **spec), folder, {}, 1 << 30)


LAYOUTS = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.int8(), pa.large_string()),
]


@pytest.mark.parametrize("other", LAYOUTS, ids=str)
@pytest.mark.parametrize("first", LAYOUTS, ids=str)
def test_strings_are_read_with_the_layout_of_the_first_file(
    tmp_path: Path, first: pa.DataType, other: pa.DataType
) -> None:
    write_arrow(tmp_path / "a.arrow", pa.table({"s": text(["x", None], first)}))
    write_arrow(tmp_path / "b.arrow", pa.table({"s": text(["y", None], other)}))
    source = open_folder(tmp_path)
    has_dictionary = pa.types.is_dictionary(first) or pa.types.is_dictionary(other)
    unified = pa.string() if first != other and has_dictionary else first
    assert source.reader.schema.field("s").type == unified
    assert [row["s"] for row in rows(source)] == ["x", None, "y", None]


def text(values: list[str | None], type: pa.DataType) -> pa.Array:
    return pa.array(values, pa.string()).cast(type)


def write_arrow(path: Path, table: pa.Table, chunk: int | None = None) -> None:
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=chunk)


def test_dictionaries_may_be_too_large_for_the_first_index_type(tmp_path: Path) -> None:
    narrow = pa.dictionary(pa.int8(), pa.string())
    wide = pa.dictionary(pa.int32(), pa.string())
    many = [str(i) for i in range(1000)]
    write_arrow(tmp_path / "a.arrow", pa.table({"s": text(["x"], narrow)}))
    write_arrow(tmp_path / "b.arrow", pa.table({"s": text(many, wide)}))
    assert [row["s"] for row in rows(open_folder(tmp_path))] == ["x", *many]


def test_nulls_metadata_and_nullability_may_differ(tmp_path: Path) -> None:
    strict = pa.schema([pa.field("n", pa.int64(), nullable=False)], metadata={"by": "hand"})
    pa.parquet.write_table(pa.table({"n": pa.nulls(2)}), tmp_path / "a.parquet")
    pa.parquet.write_table(pa.table({"n": [1]}, schema=strict), tmp_path / "b.parquet")
    pa.parquet.write_table(pa.table({"n": pa.nulls(1)}), tmp_path / "c.parquet")
    source = open_folder(tmp_path)
    assert source.reader.schema.equals(pa.schema([("n", pa.int64())]), check_metadata=True)
    assert [row["n"] for row in rows(source)] == [None, None, 1, None]


@pytest.mark.parametrize("first", ["a", "b"])
def test_nested_fields_may_be_not_nullable_in_one_file_only(tmp_path: Path, first: str) -> None:
    strict = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    loose = pa.struct([pa.field("x", pa.int64())])
    second = "b" if first == "a" else "a"
    write(tmp_path / f"{first}.parquet", s=pa.array([{"x": 1}], strict))
    write(tmp_path / f"{second}.parquet", s=pa.array([{"x": None}], loose))
    source = open_folder(tmp_path)
    assert source.reader.schema.field("s").type == loose
    found = [row["s"] for row in rows(source)]
    assert sorted(found, key=repr) == [{"x": 1}, {"x": None}]


@pytest.mark.parametrize("encoded", [False, True])
def test_list_items_have_the_same_name_in_all_batches(tmp_path: Path, encoded: bool) -> None:
    """List types are equal whatever the item's name, but writers need batches with one schema."""
    for file, name in [("a", "item"), ("b", "element"), ("c", "array")]:
        kind = pa.list_(pa.field(name, pa.int64()))
        table = pa.table({"l": pa.array([[1]], kind)})
        pa.parquet.write_table(
            table, tmp_path / f"{file}.parquet", use_compliant_nested_type=name == "element"
        )
    source = open_folder(tmp_path)
    reader = source.reader
    for split in source.splits:
        for batch in reader.read_encoded(split) if encoded else reader.read(split):
            assert str(batch.schema) == str(reader.schema)


@pytest.mark.parametrize("names", [("a", "a.b"), ("a.b", "a")])
def test_a_column_may_have_the_path_of_a_nested_field_as_its_name(
    tmp_path: Path, names: list[str]
) -> None:
    columns = {"a": [{"b": "x"}, {"b": "y"}] * 1000, "a.b": ["u", None] * 1000}
    table = pa.table(columns).select(list(names))
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    (split,) = (source := open_folder(tmp_path)).splits
    batches = list(source.reader.read_encoded(split))
    assert [row for batch in batches for row in batch.to_pylist()] == table.to_pylist()


def test_few_long_strings_are_decoded_in_slices(tmp_path: Path) -> None:
    """The file has 100 kB and decodes to over 2 GiB, more than 32-bit offsets can address."""
    values = pa.array([letter * 20_000 for letter in "abc"])
    codes = pa.array([n % 3 for n in range(130_000)], pa.int32())
    strings = pa.DictionaryArray.from_arrays(codes, values)
    pa.parquet.write_table(pa.table({"s": strings}), tmp_path / "a.parquet", store_schema=False)
    (split,) = (source := open_folder(tmp_path)).splits
    batch = next(source.reader.read_encoded(split))
    assert batch.schema.field("s").type == pa.string()
    assert batch.column("s")[:4].to_pylist() == strings[:4].to_pylist()


def test_parquet_files_with_different_types_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", n=pa.array([1], pa.int64()), s=pa.array(["x"]))
    write(tmp_path / "b.parquet", n=pa.array([1], pa.int32()), s=pa.array(["x"]))
    with refused(SchemaMismatchError):
        open_folder(tmp_path)
    assert rows(open_folder(tmp_path, columns=["s"])) == [{"s": "x"}, {"s": "x"}]
    with refused(JobFileError, "inputs.visits.types"):
        open_folder(tmp_path, types={"n": "int64"})


def test_duplicate_column_names_are_refused(tmp_path: Path) -> None:
    table = pa.table([pa.array([1]), pa.array([2])], names=["n", "n"])
    write_arrow(tmp_path / "a.arrow", table)
    with refused(InputError):
        open_folder(tmp_path)


def test_a_large_arrow_batch_is_read_in_slices(tmp_path: Path) -> None:
    table = pa.table({"n": range(3_000_000)})
    write_arrow(tmp_path / "a.arrow", table, chunk=3_000_000)
    source = open_folder(tmp_path)
    sizes = [batch.nbytes for batch in source.reader.read(source.splits[0])]
    assert len(sizes) == 6
    assert max(sizes) <= 4 << 20
