"""The schema of text inputs: inferred types, declared types, and files that do not agree."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mrflight.config.input_spec import InputSpec
from mrflight.config.text_options import CsvOptions, JsonOptions
from mrflight.errors import (
    BadRowError,
    ColumnNotFoundError,
    JobFileError,
    SchemaMismatchError,
)
from mrflight.sources import open_source
from mrflight.sources.base import Source
from tests.support.suite.messages import refused


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
    with refused(SchemaMismatchError):
        open_files(tmp_path, files)
    assert rows(open_files(tmp_path, files, types={"n": "string"}, columns=["n"])) == [
        {"n": ""},
        {"n": "1"},
        {"n": "abc"},
    ]


def test_different_headers_are_refused(tmp_path: Path) -> None:
    with refused(SchemaMismatchError):
        open_files(tmp_path, {"a.csv": "url,visitor\n", "b.csv": "url,vistor\n"})


def test_all_headers_are_read_but_only_some_files_are_sampled(tmp_path: Path) -> None:
    files = {f"{i:03}.csv": f"a,b\n{i},x\n" for i in range(200)}
    assert len(rows(open_files(tmp_path, files))) == 200
    with refused(SchemaMismatchError):
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
    with refused(ColumnNotFoundError, "inputs.visits.types"):
        open_files(tmp_path, files, types={"m": "int64"})
    with refused(ColumnNotFoundError, "inputs.visits.columns"):
        open_files(tmp_path, files, columns=["m"])
    with refused(JobFileError, "inputs.visits.types.n"):
        open_files(tmp_path, files, types={"n": "integer"})
    with refused(JobFileError, "inputs.visits.types.n"):
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
    with refused(BadRowError):
        open_files(tmp_path, files, types={"at": "timestamp[us]"}, json=formats)
    with refused(JobFileError, "inputs.visits.json.timestamp_formats"):
        open_files(tmp_path, files, json=JsonOptions(timestamp_formats=["%f"]))
