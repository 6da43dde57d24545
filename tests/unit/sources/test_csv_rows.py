"""Tests of csv rows with fewer fields than the header, and of numbers with separators."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from mrflight.config.input_spec import InputSpec
from mrflight.config.text_options import CsvOptions
from mrflight.errors import BadRowError, ColumnNotFoundError, JobFileError, SchemaMismatchError
from mrflight.sources import open_source
from mrflight.sources.base import Source
from tests.support.suite.messages import refused

NO_QUOTES = {"quote": "", "escape": "\\"}


def open_files(
    folder: Path, *files: str, types: dict[str, str] | None = None, **options: Any
) -> Source:
    for number, text in enumerate(files):
        (folder / f"{number}.csv").write_text(text, encoding="utf-8")
    spec = InputSpec(path=str(folder), types=types or {}, csv=CsvOptions(**options))
    return open_source("visits", spec, folder, {}, split_bytes=9)


def rows(source: Source) -> list[tuple[Any, ...]]:
    batches = [batch for split in source.splits for batch in source.reader.read(split)]
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_another_delimiter_is_told_by_a_missing_column(tmp_path: Path, delimiter: str) -> None:
    with refused(ColumnNotFoundError, "inputs.visits.types"):
        open_files(tmp_path, f"n{delimiter}s\n1{delimiter}a\n", types={"n": "string"})


SHORT = 'n,s,x\n1\n2,b\n\n3,c,1.5\r\n4,"d"\r\n5\n6,"e ""f""",2\n'


@pytest.mark.parametrize("newlines", [False, True])
def test_a_short_row_has_nulls_at_its_end(tmp_path: Path, newlines: bool) -> None:
    source = open_files(tmp_path, SHORT, allow_missing_columns=True, newlines_in_values=newlines)
    oracle = duckdb.sql(
        f"select * from read_csv('{tmp_path}/0.csv', null_padding=true, header=true, "
        "auto_detect=false, columns={'n': 'bigint', 's': 'varchar', 'x': 'double'}, "
        "parallel=false, new_line='\\n', quote='\"', escape='\"', strict_mode=false)"
    )
    assert rows(source) == oracle.fetchall()


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("n,s\n1\n2.5,x\n", {"n": "double", "s": "string"}),
        ("n,s\n1,x\n2.5\n", {"n": "double", "s": "string"}),
        ("n,s\n1,x\nabc\n", {"n": "string", "s": "string"}),
        ("n,s\n1\n2\n", {"n": "int64", "s": "string"}),
        ("n,s\n2020-01-01\n2020-01-01 10:00:00,x\n", {"n": "timestamp[us]", "s": "string"}),
    ],
)
def test_types_are_inferred_from_short_rows_too(
    tmp_path: Path, text: str, types: dict[str, str]
) -> None:
    source = open_files(tmp_path, text, allow_missing_columns=True)
    assert {field.name: str(field.type) for field in source.reader.schema} == types
    assert [row[1] for row in rows(source)].count(None) == text.count("\n") - 1 - text.count("x")


def test_a_file_may_lack_columns_of_the_first_one(tmp_path: Path) -> None:
    source = open_files(tmp_path, "n,s\n1,x\n", "s\ny\n", allow_missing_columns=True)
    assert rows(source) == [(1, "x"), (None, "y")]
    with refused(SchemaMismatchError):
        open_files(tmp_path, "n,s\n1,x\n", "s\ny\n", "t\n1\n", allow_missing_columns=True)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("n,s\n1\n2,x,y\n", {}),
        ("n,s\nx\n", {"types": {"n": "int64"}}),
        ('n,s\n1,"x\n', {}),
        ('n,s,t\n1,x,y\n2,"x\ny"\n', {}),
        (
            'n,s,t\n1,"x\ny"\n2,x,y,z\n',
            {"newlines_in_values": True},
        ),
    ],
)
def test_other_bad_rows_are_still_errors(
    tmp_path: Path, text: str, options: dict[str, Any]
) -> None:
    with refused(BadRowError):
        rows(open_files(tmp_path, text, allow_missing_columns=True, **options))


def test_column_names_may_be_more_than_the_first_row_has(tmp_path: Path) -> None:
    options = {"header": False, "column_names": ["n", "s"]}
    source = open_files(tmp_path, "1\n2,x\n", allow_missing_columns=True, **options)
    assert rows(source) == [(1, None), (2, "x")]


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ('n,s\n"1,234",a\n-5,"1,2"\n', {}, [(1234, "a"), (-5, "1,2")]),
        ("n;s\n1.234,5;a\n-1.234.567;b\n7,5;\n", {}, [(1234.5, "a"), (-1234567, "b"), (7.5, "")]),
        ("n;s\n12.34.567;a\nNA;b\n ;c\n", {}, [(1234567, "a"), (None, "b"), (None, "c")]),
        ("n;s\n1 234;a\n", {"thousands": " ", "delimiter": ";"}, [(1234, "a")]),
        ("n,s\n1\u202f234,a\n", {"thousands": "\u202f"}, [(1234, "a")]),
        ("n;s\n1'234;a\n", {"thousands": "'", "delimiter": ";"}, [(1234, "a")]),
        (
            "n;s\n1.234,56;a\n",
            {"types": {"n": "decimal128(9, 2)"}},
            [(Decimal("1234.56"), "a")],
        ),
        ("n;s\n1.234;a\n", {"types": {"n": "string"}}, [("1.234", "a")]),
        ("n;s\n-;a\n1.000;-\n", {"null_values": ["-"]}, [(None, "a"), (1000, None)]),
        (
            "n;s\n1.000\n2.5;x\n",
            {"allow_missing_columns": True, "types": {"n": "string"}},
            [("1.000", None), ("2.5", "x")],
        ),
        ("n;s\n1.000\n5;x\n", {"allow_missing_columns": True}, [(1000, None), (5, "x")]),
    ],
)
def test_numbers_with_separators(
    tmp_path: Path, text: str, options: dict[str, Any], expected: list[tuple[Any, ...]]
) -> None:
    german = {"delimiter": ";", "decimal": ",", "thousands": "."}
    settings = (german if ";" in text else {"thousands": ","}) | options
    if settings["thousands"] in " '":
        settings["decimal"] = "."
    if " ;c" in text:
        settings["null_values"] = ["NA", " "]
    assert rows(open_files(tmp_path, text, **settings)) == expected


def test_separators_are_read_as_duckdb_reads_them(tmp_path: Path) -> None:
    numbers = [0, 999, 1000, -1234567, 12345678901, 1234.25, -0.5]
    source = open_files(
        tmp_path, "n\n" + "".join(f'"{number:,}"\n' for number in numbers), thousands=","
    )
    oracle = duckdb.sql(
        f"select * from read_csv('{tmp_path}/0.csv', thousands=',', columns={{'n': 'double'}}, "
        "quote='\"', header=true, auto_detect=false)"
    )
    assert rows(source) == oracle.fetchall()


@pytest.mark.parametrize(
    "value", ["1,5", "1,23", "1,2345", ",123", "1,,234", "1,234,5", "1234,567", "1.5,000", "1,234x"]
)
def test_misplaced_separators_are_errors(tmp_path: Path, value: str) -> None:
    """A decimal comma that is read as a separator would make 15 of 1,5."""
    with refused(BadRowError):
        open_files(tmp_path, f'n\n1\n"{value}"\n', types={"n": "double"}, thousands=",")


def test_a_point_is_no_decimal_comma(tmp_path: Path) -> None:
    dialect = {"thousands": " ", "decimal": ",", "delimiter": ";"}
    with refused(BadRowError):
        open_files(tmp_path, "n\n1.5\n", types={"n": "double"}, **dialect)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"thousands": ""}, "thousands must be one character, and no letter, digit, sign or line"),
        ({"thousands": "5"}, "thousands must be one character"),
        ({"thousands": "-"}, "thousands must be one character"),
        ({"thousands": "."}, "thousands and inputs.visits.csv.decimal are both '.'; they must"),
        ({"thousands": '"'}, "thousands and inputs.visits.csv.quote are both '\"'"),
        ({"thousands": ",", **NO_QUOTES}, "thousands and inputs.visits.csv.delimiter are both ','"),
    ],
)
def test_separators_that_cannot_be_read_are_refused(
    tmp_path: Path, options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(JobFileError) as raised:
        open_files(tmp_path, "n\n1\n", **options)
    assert f"inputs.visits.csv.{expected}" in str(raised.value)
