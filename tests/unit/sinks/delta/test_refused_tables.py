"""Delta tables that mrflight cannot write to are refused with the reason."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from deltalake.schema import Field, PrimitiveType

from mrflight.errors import OutputError
from tests.support.suite.messages import refused
from tests.support.tables.delta_outputs import ROWS, finish, open_delta, run
from tests.support.tables.outputs import Mode


@pytest.mark.parametrize(
    ("configuration", "mode"),
    [
        ({"delta.appendOnly": "true"}, "overwrite"),
        ({"delta.constraints.positive": "n > 0"}, "append"),
    ],
)
def test_a_table_with_rules_is_refused(
    tmp_path: Path, configuration: dict[str, str | None], mode: Mode
) -> None:
    DeltaTable.create(
        tmp_path / "t", ROWS.schema, configuration=configuration, raise_if_key_not_exists=False
    )
    with refused(OutputError):
        open_delta(tmp_path, mode)


def test_an_append_only_table_takes_appends(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path / "t", ROWS.schema, configuration={"delta.appendOnly": "true"})
    assert run(tmp_path) == 1


@pytest.mark.parametrize(
    "metadata",
    [
        {"delta.invariants": '{"expression": {"expression": "n > 0"}}'},
        {"delta.generationExpression": "k"},
    ],
)
def test_a_table_with_rules_for_a_column_is_refused(
    tmp_path: Path, metadata: dict[str, Any]
) -> None:
    schema = Schema([Field("n", PrimitiveType("long"), metadata=metadata)])
    DeltaTable.create(tmp_path / "t", schema)
    with refused(OutputError):
        open_delta(tmp_path)


def edit_log(folder: Path, version: int, old: str, new: str) -> None:
    path = folder / "t" / "_delta_log" / f"{version:020}.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_table_with_column_mapping_is_refused(tmp_path: Path) -> None:
    run(tmp_path)
    edit_log(
        tmp_path, 0, '"configuration":{}', '"configuration":{"delta.columnMapping.mode":"name"}'
    )
    edit_log(tmp_path, 0, '"minWriterVersion":2', '"minWriterVersion":5')
    edit_log(tmp_path, 0, '"minReaderVersion":1', '"minReaderVersion":2')
    field = r"\"type\":\"long\",\"nullable\":true,\"metadata\":{"
    ids = r"\"delta.columnMapping.id\":1,\"delta.columnMapping.physicalName\":\"c1\""
    edit_log(tmp_path, 0, field, field + ids)
    field, ids = field.replace("long", "string"), ids.replace("1", "2")
    edit_log(tmp_path, 0, field, field + ids)
    with refused(OutputError):
        open_delta(tmp_path, job_id="next")


def test_a_table_with_an_unknown_feature_is_refused(tmp_path: Path) -> None:
    run(tmp_path)
    protocol = '{"minReaderVersion":1,"minWriterVersion":2}'
    newer = '{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["rowTracking"]}'
    edit_log(tmp_path, 0, '"protocol":' + protocol, '"protocol":' + newer)
    with refused(OutputError):
        open_delta(tmp_path, job_id="next")


def test_nulls_for_a_not_null_column_are_refused(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), ("k", pa.string())])
    write_deltalake(tmp_path / "t", ROWS.cast(schema))
    assert run(tmp_path) == 1
    with refused(OutputError):
        run(tmp_path, pa.table({"n": [1, None], "k": ["a", "b"]}))


def test_a_column_that_became_not_null_meanwhile_is_refused(tmp_path: Path) -> None:
    run(tmp_path, job_id="old")
    sink = open_delta(tmp_path, "append", "slow")
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), ("k", pa.string())])
    shutil.rmtree(tmp_path / "t" / "_delta_log")
    write_deltalake(tmp_path / "t", ROWS.cast(schema), mode="overwrite")
    with refused(OutputError):
        finish(sink)


def test_a_folder_name_that_deltalake_would_decode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="choose another name"):
        open_delta(tmp_path, table="100%25")
