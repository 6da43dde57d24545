"""Tests of Delta inputs: what only the log has, and tables that must not be read as parquet."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from deltalake import DeltaTable, write_deltalake

from mrflight.config.input_spec import InputSpec
from mrflight.errors import ColumnNotFoundError, InputError
from mrflight.sources import open_source
from mrflight.sources.base import Source
from tests.support.suite.messages import refused
from tests.support.tables.delta_log import action, commit, first_row_deleted, protocol


def open_table(path: Path, **spec: Any) -> Source:
    return open_source("visits", InputSpec(path=str(path), **spec), path, {}, 1 << 30)


def read(source: Source) -> pa.Table:
    batches = [batch for split in source.splits for batch in source.reader.read(split)]
    return pa.Table.from_batches(batches, source.reader.schema)


def ordered(table: pa.Table) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = table.sort_by("n").to_pylist()
    return result


VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "word": (pa.string(), ["plain", "with space", "p%q/é=:", None]),
    "day": (pa.date32(), [date(2020, 1, 1), date(1969, 12, 31), date(2020, 1, 1), None]),
    "at": (pa.timestamp("us", "UTC"), [datetime(2020, 1, 1, 1, 2, 3, 4, tzinfo=UTC), None] * 2),
    "local": (pa.timestamp("us"), [datetime(2020, 1, 1, 1, 2, 3, 4), None] * 2),
    "share": (pa.float64(), [0.1, 1e30, -0.5, None]),
    "few": (pa.int8(), [1, -128, 127, None]),
    "seen": (pa.bool_(), [True, False, True, None]),
    "price": (pa.decimal128(9, 2), [Decimal("1.25"), Decimal("9999999.99"), Decimal("0.00"), None]),
}


@pytest.mark.parametrize("column", VALUES)
def test_partition_columns_keep_their_type(tmp_path: Path, column: str) -> None:
    type, values = VALUES[column]
    table = pa.table({"n": range(4), column: pa.array(values, type)})
    write_deltalake(str(tmp_path / "t"), table, partition_by=[column])
    source = open_table(tmp_path / "t")
    assert source.reader.schema == table.schema
    assert ordered(read(source)) == table.to_pylist()
    only = read(open_table(tmp_path / "t", columns=[column]))
    assert sorted(map(str, only[column].to_pylist())) == sorted(map(str, values))


def test_only_the_latest_version_is_read(tmp_path: Path) -> None:
    for n in range(3):
        write_deltalake(str(tmp_path), pa.table({"n": [n]}), mode="append")
    DeltaTable(tmp_path).delete("n = 1")
    assert len(list(tmp_path.glob("*.parquet"))) == 3
    assert ordered(read(open_table(tmp_path))) == [{"n": 0}, {"n": 2}]
    write_deltalake(str(tmp_path), pa.table({"n": [9]}), mode="overwrite")
    assert ordered(read(open_table(tmp_path))) == [{"n": 9}]


def test_added_columns_are_null_in_older_files(tmp_path: Path) -> None:
    inner = pa.struct([("x", pa.int64())])
    write_deltalake(str(tmp_path), pa.table({"n": [1], "o": pa.array([{"x": 1}], inner)}))
    wider = pa.struct([("x", pa.int64()), ("y", pa.string())])
    later = pa.table({"s": ["x"], "o": pa.array([{"x": 2, "y": "b"}], wider), "n": [2]})
    write_deltalake(str(tmp_path), later, mode="append", schema_mode="merge")
    source = open_table(tmp_path)
    assert ordered(read(source)) == [
        {"n": 1, "o": {"x": 1, "y": None}, "s": None},
        {"n": 2, "o": {"x": 2, "y": "b"}, "s": "x"},
    ]
    assert sorted(read(open_table(tmp_path, columns=["s"]))["s"].to_pylist(), key=str) == [
        None,
        "x",
    ]


def test_a_missing_column_is_refused(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"n": [1], "s": ["x"]}))
    with refused(ColumnNotFoundError, "inputs.visits.columns"):
        open_table(tmp_path, columns=["m"])


def test_the_error_names_a_missing_file(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"n": [1]}))
    (file,) = tmp_path.glob("*.parquet")
    file.unlink()
    with pytest.raises(InputError, match=file.name):
        open_table(tmp_path)


def test_an_unreadable_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    for text in (None, "no json"):
        if text:
            (tmp_path / "_delta_log" / f"{0:020}.json").write_text(text)
        with refused(InputError) as raised:
            open_table(tmp_path)
        assert "\n" not in str(raised.value)


def test_deletion_vectors_are_refused_if_any_delete_rows(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"n": [1, 2, 3]}))
    commit(tmp_path, protocol("deletionVectors"))
    assert ordered(read(open_table(tmp_path))) == [{"n": 1}, {"n": 2}, {"n": 3}]
    add = action(tmp_path, "add")
    marked = {**add, "deletionVector": first_row_deleted()}
    commit(tmp_path, {"remove": {"path": add["path"], "dataChange": True}}, {"add": marked})
    with refused(InputError):
        open_table(tmp_path)


def test_column_mapping_is_refused_if_it_is_used(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"n": [1]}))
    commit(tmp_path, protocol("columnMapping"))
    assert ordered(read(open_table(tmp_path))) == [{"n": 1}]
    metadata = action(tmp_path, "metaData")
    schema = json.loads(metadata["schemaString"])
    for field in schema["fields"]:
        field["metadata"] = {
            "delta.columnMapping.id": 1,
            "delta.columnMapping.physicalName": "col-1",
        }
    metadata["schemaString"] = json.dumps(schema)
    metadata["configuration"] = {"delta.columnMapping.mode": "name"}
    commit(tmp_path, {"metaData": metadata})
    with refused(InputError):
        open_table(tmp_path)


def test_unknown_reader_features_are_refused(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"n": [1]}))
    commit(tmp_path, protocol("timestampNtz", "unknownFeature"))
    with pytest.raises(InputError, match="unknownFeature"):
        open_table(tmp_path)
