"""Tests of the schema of an input: inferred types, declared types, and mismatches."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from mrflight.config.input_spec import InputSpec
from mrflight.config.text_options import CsvOptions, JsonOptions
from mrflight.errors import (
    BadRowError,
    ColumnNotFoundError,
    InputError,
    JobFileError,
    SchemaMismatchError,
)
from mrflight.sources import open_source
from mrflight.sources.base import Source


def open_files(
    folder: Path, files: dict[str, str], split_bytes: int = 1 << 30, **spec: Any
) -> Source:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return open_source("visits", InputSpec(path=str(folder), **spec), folder, {}, split_bytes)


def rows(source: Source) -> list[dict[str, Any]]:
    batches = [batch for split in source.splits for batch in source.reader.read(split)]
    result: list[dict[str, Any]] = pa.Table.from_batches(batches, source.reader.schema).to_pylist()
    return result


def types(source: Source) -> dict[str, str]:
    return {field.name: str(field.type) for field in source.reader.schema}


@pytest.mark.parametrize(
    ("values", "type"),
    [
        ("1\n-2\n", "int64"),
        ("1\n2.5\n", "double"),
        ("1\n\n", "int64"),
        ("true\nfalse\n", "bool"),
        ("2020-01-01\n2021-01-01\n", "date32[day]"),
        ("2020-01-01 10:00:00\n", "timestamp[us]"),
        ("2020-01-01T10:00:00.123456\n", "timestamp[us]"),
        ("2020-01-01T10:00:00Z\n", "timestamp[us, tz=UTC]"),
        ("2020-01-01T10:00:00.123456789\n", "timestamp[ns]"),
        ("10:00:00\n", "time32[s]"),
        ("abc\n", "string"),
        ("1\nabc\n", "string"),
        ("NA\n\n", "string"),
        ("", "string"),
    ],
)
def test_inferred_types_of_csv(tmp_path: Path, values: str, type: str) -> None:
    assert types(open_files(tmp_path, {"a.csv": f"c\n{values}"})) == {"c": type}


def test_inferred_types_of_several_files_are_unified(tmp_path: Path) -> None:
    files = {
        "a.csv": "n,d,s,t,empty\n,1,,2020-01-01 10:00:00,\n",
        "b.csv": "n,d,s,t,empty\n7,2.5,x,2020-01-01 10:00:00.123456789,\n",
        "c.csv": "n,d,s,t,empty\n",
        "d.csv": "",
    }
    source = open_files(tmp_path, files)
    assert types(source) == {
        "n": "int64",
        "d": "double",
        "s": "string",
        "t": "timestamp[ns]",
        "empty": "string",
    }
    batches = [batch for split in source.splits for batch in source.reader.read(split)]
    assert [d for batch in batches for d in batch["d"].to_pylist()] == [1.0, 2.5]
    assert source.files == tuple(f"{tmp_path}/{name}.csv" for name in "abc")


def test_inferred_types_without_a_common_type_are_refused(tmp_path: Path) -> None:
    files = {"a.csv": "n,s\n,x\n", "b.csv": "n,s\n1,x\n", "c.csv": "n,s\nabc,x\n"}
    with pytest.raises(SchemaMismatchError) as raised:
        open_files(tmp_path, files)
    assert str(raised.value) == (
        f"{tmp_path}/c.csv: column 'n' looks like string, but like int64 in {tmp_path}/b.csv; "
        "set inputs.visits.types.n"
    )
    assert rows(open_files(tmp_path, files, types={"n": "string"}, columns=["n"])) == [
        {"n": ""},
        {"n": "1"},
        {"n": "abc"},
    ]


def test_different_headers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaMismatchError) as raised:
        open_files(tmp_path, {"a.csv": "url,visitor\n", "b.csv": "url,vistor\n"})
    assert str(raised.value) == (
        f"{tmp_path}/b.csv has no column 'visitor', which {tmp_path}/a.csv has; give all files "
        'the same header, set inputs.visits.schema = "union" to read nulls, or read only columns '
        "that all files have with inputs.visits.columns"
    )


def test_all_headers_are_read_but_only_some_files_are_sampled(tmp_path: Path) -> None:
    files = {f"{i:03}.csv": f"a,b\n{i},x\n" for i in range(200)}
    assert len(rows(open_files(tmp_path, files))) == 200
    with pytest.raises(SchemaMismatchError, match=r"177\.csv has no column 'b'"):
        open_files(tmp_path, {"177.csv": "a\n1\n"})


def test_declared_types_of_csv(tmp_path: Path) -> None:
    text = "zip,at,price,n,s\n00123,2020-01-01T00:00:00Z,1.5,7,x\n"
    set_types = {
        "zip": "string",
        "at": "timestamp[us, UTC]",
        "price": "decimal128(12, 2)",
        "n": "uint16",
        "s": "large_string",
    }
    source = open_files(tmp_path, {"a.csv": text}, types=set_types)
    assert types(source) == {
        "zip": "string",
        "at": "timestamp[us, tz=UTC]",
        "price": "decimal128(12, 2)",
        "n": "uint16",
        "s": "large_string",
    }
    assert rows(source)[0]["zip"] == "00123"


def test_missing_columns_and_invalid_types_are_refused(tmp_path: Path) -> None:
    files = {"a.csv": "n,s\n1,x\n"}
    reason = rf"{tmp_path}/a\.csv has no column 'm'; it has 'n', 's'"
    with pytest.raises(ColumnNotFoundError, match=rf"^inputs\.visits\.types: {reason}"):
        open_files(tmp_path, files, types={"m": "int64"})
    with pytest.raises(ColumnNotFoundError, match=rf"^inputs\.visits\.columns: {reason}"):
        open_files(tmp_path, files, columns=["m"])
    with pytest.raises(
        JobFileError, match=r"inputs\.visits\.types\.n: 'integer' is not a type; known"
    ):
        open_files(tmp_path, files, types={"n": "integer"})
    with pytest.raises(JobFileError, match=r"inputs\.visits\.types\.n: CSV conversion to list"):
        open_files(tmp_path, files, types={"n": "list<int64>"})


def test_default_column_names_without_a_header(tmp_path: Path) -> None:
    source = open_files(tmp_path, {"a.csv": "\n1,x\n2,y\n"}, csv=CsvOptions(header=False))
    assert rows(source) == [{"f0": 1, "f1": "x"}, {"f0": 2, "f1": "y"}]


def test_a_delimiter_that_is_set_applies_to_tsv_too(tmp_path: Path) -> None:
    source = open_files(tmp_path, {"a.tsv": "a;b\n1;2\n"}, csv=CsvOptions(delimiter=";"))
    assert rows(source) == [{"a": 1, "b": 2}]


def test_json_keeps_the_order_of_fields_strings_and_nesting(tmp_path: Path) -> None:
    files = {
        "a.jsonl": '{"s":"2020-01-01","n":null,"o":{"k":[1,null]}}\n',
        "b.jsonl": '{"n":1.5,"more":true,"o":{"k":[2.5],"l":"x"}}\n{"o":null}\n',
        "c.jsonl": "",
    }
    source = open_files(tmp_path, files, types={"n": "double"})
    assert types(source) == {
        "s": "string",
        "n": "double",
        "o": "struct<k: list<item: double>, l: string>",
        "more": "bool",
    }
    assert rows(source) == [
        {"s": "2020-01-01", "n": None, "o": {"k": [1.0, None], "l": None}, "more": None},
        {"s": None, "n": 1.5, "o": {"k": [2.5], "l": "x"}, "more": True},
        {"s": None, "n": None, "o": None, "more": None},
    ]


def test_declared_types_of_json(tmp_path: Path) -> None:
    text = '{"d":"2020-01-02","at":"2020-01-02T00:00:00.5Z","price":1.25}\n'
    set_types = {
        "d": "date32",
        "at": "timestamp[us, UTC]",
        "price": "decimal128(9, 2)",
        "later": "struct<x: int64, y: list<string>>",
    }
    source = open_files(tmp_path, {"a.json": text}, types=set_types)
    assert types(source) == {
        "d": "date32[day]",
        "at": "timestamp[us, tz=UTC]",
        "price": "decimal128(9, 2)",
        "later": "struct<x: int64, y: list<item: string>>",
    }
    assert str(rows(source)[0]["d"]) == "2020-01-02"


@pytest.mark.parametrize("split_bytes", [1, 1 << 30])
def test_formats_of_timestamps_in_json(tmp_path: Path, split_bytes: int) -> None:
    texts = ["05.03.2024 10:00", None, "2024-03-06T11:30:00", "07.03.2024"]
    lines = [json.dumps({"at": text}) for text in texts]
    source = open_files(
        tmp_path,
        {"a.jsonl": "\n".join(lines)},
        split_bytes,
        types={"at": "timestamp[s]"},
        json=JsonOptions(timestamp_formats=["%d.%m.%Y %H:%M", "%d.%m.%Y", "ISO8601"]),
    )
    expected = [(5, 10, 0), None, (6, 11, 30), (7, 0, 0)]
    assert [row["at"] for row in rows(source)] == [at and datetime(2024, 3, *at) for at in expected]


def test_formats_of_timestamps_with_zones_in_json(tmp_path: Path) -> None:
    files = {"a.json": '{"at":"05.03.2024 10:00 +0200"}\n'}
    formats = JsonOptions(timestamp_formats=["%d.%m.%Y %H:%M %z"])
    source = open_files(tmp_path, files, types={"at": "timestamp[us, UTC]"}, json=formats)
    assert [row["at"].hour for row in rows(source)] == [8]
    with pytest.raises(BadRowError, match=r'line 1: column .at. has "05\.03\.2024 10:00'):
        open_files(tmp_path, files, types={"at": "timestamp[us]"}, json=formats)
    with pytest.raises(JobFileError, match=r"visits\.json\.timestamp_formats: '%f' has %f, which"):
        open_files(tmp_path, files, json=JsonOptions(timestamp_formats=["%f"]))


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
    with pytest.raises(SchemaMismatchError) as raised:
        open_folder(tmp_path)
    assert str(raised.value) == (
        f"{tmp_path}/b.parquet: column 'n' is int32, but int64 in {tmp_path}/a.parquet; set "
        'inputs.visits.schema = "union", or leave the column out of inputs.visits.columns'
    )
    assert rows(open_folder(tmp_path, columns=["s"])) == [{"s": "x"}, {"s": "x"}]
    with pytest.raises(JobFileError, match=r"visits\.types is only for csv, json and key"):
        open_folder(tmp_path, types={"n": "int64"})


def test_duplicate_column_names_are_refused(tmp_path: Path) -> None:
    table = pa.table([pa.array([1]), pa.array([2])], names=["n", "n"])
    write_arrow(tmp_path / "a.arrow", table)
    with pytest.raises(InputError, match=r"a\.arrow: two columns are named 'n'; rename one"):
        open_folder(tmp_path)


def test_a_large_arrow_batch_is_read_in_slices(tmp_path: Path) -> None:
    table = pa.table({"n": range(3_000_000)})
    write_arrow(tmp_path / "a.arrow", table, chunk=3_000_000)
    source = open_folder(tmp_path)
    sizes = [batch.nbytes for batch in source.reader.read(source.splits[0])]
    assert len(sizes) == 6
    assert max(sizes) <= 4 << 20
