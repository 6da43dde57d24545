"""Tests of the errors for bad rows: file, line, column, value and what to do."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path
from typing import Any

import pytest

from mrflight.config.input_spec import InputSpec
from mrflight.config.text_options import CsvOptions
from mrflight.errors import BadRowError, InputError
from mrflight.sources import open_source
from tests.support.jobs.refused_inputs import failure, read
from tests.support.suite.messages import refused

QUOTED = {"csv": CsvOptions(newlines_in_values=True)}
CLOSE = "close the quote, or set inputs.visits.csv.newlines_in_values = true"
DELIMITER = "correct the line, or quote a value that contains the delimiter ','"
INFERRED = "from the first lines of the input; correct the value, or set inputs.visits.types"


SKIP = '; or leave out such rows with inputs.visits.bad_rows = "skip"'


def message(folder: Path, name: str, data: str | bytes, **spec: Any) -> str:
    """Return the error for a file with this ``data``, without the file's folder."""
    (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
    error = failure(folder, name, **spec)
    assert isinstance(error, BadRowError)
    assert str(error).endswith(SKIP)
    return str(error).replace(f"{folder}/", "").removesuffix(SKIP)


CSV: dict[str, tuple[str | bytes, dict[str, Any], str]] = {
    "too few fields": (
        "n,s\n1,x\n2\n3,z\n",
        {},
        f"a.csv, line 3: 1 field for 2 columns: '2'; {DELIMITER}",
    ),
    "too many fields": (
        "n,s\n1,x\n2,y,z\n",
        {},
        f"a.csv, line 3: 3 fields for 2 columns: '2,y,z'; {DELIMITER}",
    ),
    "skipped lines are counted": (
        "notes\n\nn;s\n1;x\n2\n",
        {"csv": CsvOptions(delimiter=";", skip_rows=2)},
        "a.csv, line 5: 1 field for 2 columns: '2'; correct the line, or quote a value that "
        "contains the delimiter ';'",
    ),
    "an escaped line end": (
        "n,s\n1,x\\\ny\n",
        {"csv": CsvOptions(escape="\\"), "types": {"s": "string"}},
        f"a.csv, line 2: a quoted or escaped value does not end on its line: '1,x\\\\'; {CLOSE}",
    ),
    "blank lines are counted": (
        "\n\nn,s\n\n1,x\n\n\n2\n",
        {},
        f"a.csv, line 8: 1 field for 2 columns: '2'; {DELIMITER}",
    ),
    "carriage returns": (
        "n,s\r\n1,x\r\n\r\n2\r\n",
        {},
        f"a.csv, line 4: 1 field for 2 columns: '2'; {DELIMITER}",
    ),
    "byte order mark": (
        b"\xef\xbb\xbfn,s\n1,x\n2",
        {},
        f"a.csv, line 3: 1 field for 2 columns: '2'; {DELIMITER}",
    ),
    "no header": (
        "1,x\n2\n",
        {"csv": CsvOptions(header=False)},
        f"a.csv, line 2: 1 field for 2 columns: '2'; {DELIMITER}",
    ),
    "a long line is cut": (
        "n,s\n1," + "x" * 500 + ",\n",
        {},
        f"a.csv, line 2: 3 fields for 2 columns: '1,{'x' * 98}...'; {DELIMITER}",
    ),
    "a value that is not of the set type": (
        "n,s\n1,x\nabc,y\n",
        {"types": {"n": "int32"}},
        "a.csv, line 3: column 'n' has 'abc', but inputs.visits.types.n is int32; "
        "correct one of them",
    ),
    "a value that is too large": (
        "n,s\n1,x\n300,y\n",
        {"types": {"n": "int8"}},
        "a.csv, line 3: column 'n' has '300', but inputs.visits.types.n is int8; "
        "correct one of them",
    ),
    "a value with too many digits": (
        "n,s\n1.5,x\n1.555,y\n",
        {"types": {"n": "decimal128(5, 2)"}},
        "a.csv, line 3: column 'n' has '1.555', but inputs.visits.types.n is decimal128(5, 2); "
        "correct one of them",
    ),
    "a column that is not the first": (
        "n,s,t\n1,x,2020-01-01\n2,y,2020-13-01\n",
        {"types": {"t": "date32"}, "columns": ["t"]},
        "a.csv, line 3: column 't' has '2020-13-01', but inputs.visits.types.t is date32[day]; "
        "correct one of them",
    ),
    "not UTF-8": (
        b"n,s\n1,x\n2,\xff\n",
        {},
        "a.csv, line 3: column 's' has b'\\xff', which is not UTF-8; set "
        'inputs.visits.csv.encoding, or inputs.visits.types.s = "binary"',
    ),
    "carriage returns in quotes": (
        'n,s\n1,"a\rb"\n2\n',
        {},
        f"a.csv, line 3: 1 field for 2 columns: '2'; {DELIMITER}",
    ),
    "a carriage return that ends a row": (
        "n,s\n1,x\n2,y\rz\n",
        {},
        "a.csv, line 3: '2,y\\rz' cannot be read: CSV parse error: Row #3: Expected 2 columns, "
        "got 1: z",
    ),
    "not UTF-8 without a header": (
        b"\xff,1\n",
        {"csv": CsvOptions(header=False)},
        "a.csv, line 1: column 'f0' has b'\\xff', which is not UTF-8; set "
        'inputs.visits.csv.encoding, or inputs.visits.types.f0 = "binary"',
    ),
    "a quoted line end": (
        'n,s\n1,"x\ny"\n2,z\n',
        {},
        f"a.csv, line 2: a quoted value does not end on its line: '1,\"x'; {CLOSE}",
    ),
    "an unclosed quote at the end": (
        'n,s\n1,x\n2,"z\n',
        {},
        f"a.csv, line 3: a quoted value does not end on its line: '2,\"z'; {CLOSE}",
    ),
    "an unclosed quote without a last line end": (
        'n,s\n1,x\n2,"z',
        {},
        f"a.csv, line 3: a quoted value does not end on its line: '2,\"z'; {CLOSE}",
    ),
    "an unclosed quote before empty lines": (
        'n,s\n1,x\n2,"z\n\n\n',
        {},
        f"a.csv, line 3: a quoted value does not end on its line: '2,\"z'; {CLOSE}",
    ),
    "a stray quote and an unclosed one": (
        'n,s\n1,x\n5" pipe,"z\n3,y\n',
        {},
        f"a.csv, line 3: a quoted value does not end on its line: '5\" pipe,\"z'; {CLOSE}",
    ),
    "fields after values with line ends": (
        'n,s\n1,"x\ny"\n\n2,"a\nb"\n3,"q\nr",t\n4,u\n',
        QUOTED,
        f"a.csv, line 7: 3 fields for 2 columns: '3,\"q\\nr\",t'; {DELIMITER}",
    ),
    "types after values with line ends": (
        'n,s\n1,"x\ny"\n\nq,"a\nb"\n',
        {**QUOTED, "types": {"n": "int64"}},
        "a.csv, line 5: column 'n' has 'q', but inputs.visits.types.n is int64; "
        "correct one of them",
    ),
}


@pytest.mark.parametrize(("data", "spec", "expected"), CSV.values(), ids=CSV)
def test_a_bad_row_in_csv_is_reported(
    tmp_path: Path, data: str | bytes, spec: dict[str, Any], expected: str
) -> None:
    assert message(tmp_path, "a.csv", data, **spec) == expected


@pytest.mark.parametrize("split_bytes", [10_000, 300_000, 1 << 30])
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_the_line_number_is_right_in_any_split(
    tmp_path: Path, split_bytes: int, suffix: str
) -> None:
    data = b"n,s\n" + b"1,x\n\n" * 250_000 + b"1.5,x\n" + b"1,x\n" * 1000
    pack = gzip.compress if suffix.endswith("gz") else bytes
    (tmp_path / f"a{suffix}").write_bytes(pack(data))
    source = open_source("visits", InputSpec(path=f"a{suffix}"), tmp_path, {}, split_bytes)
    with refused(BadRowError):
        read(source, since=len(source.splits) * 3 // 4)


def test_a_quoted_line_end_at_a_split_bound_is_an_error(tmp_path: Path) -> None:
    """The split with the beginning of the quoted value must fail, or half a row would be read."""
    rows = b"".join(b'%d,"some text"\n' % i for i in range(100))
    data = b"n,s\n" + rows + b'100,"one\n2,two"\n' + rows
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    for cut in range(len(rows), len(rows) + 30):
        error = failure(tmp_path, "a.csv", split_bytes=cut, types={"n": "int64", "s": "string"})
        assert "line 102: a quoted value does not end on its line: '100,\"one'" in str(error)


JSON: dict[str, tuple[str | bytes, dict[str, Any], str]] = {
    "half an object": (
        '{"n":1}\n{"n":\n',
        {},
        "a.json, line 2: '{\"n\":' is not one json object (Expecting value at column 1); "
        "write one object per line",
    ),
    "two objects": (
        '{"n":1}\n{"n":1}{"n":2}\n',
        {},
        'a.json, line 2: \'{"n":1}{"n":2}\' is not one json object (Extra data at column 8); '
        "write one object per line",
    ),
    "an object over several lines": (
        '{\n"n":1\n}\n',
        {},
        "a.json, line 1: '{' is not one json object (Expecting property name enclosed in double "
        "quotes at column 1); write one object per line",
    ),
    "a list of objects": (
        '[{"n":1}]\n',
        {},
        "a.json, line 1: '[{\"n\":1}]' is not a json object; write one object per line, and no "
        "list",
    ),
    "null in place of the first object": (
        'null\n{"n":1}\n',
        {"types": {"n": "int64"}},
        "a.json, line 1: 'null' is not a json object; write one object per line, and no list",
    ),
    "nothing but null": (
        b"\xef\xbb\xbf \r\n null",
        {},
        "a.json, line 2: ' null' is not a json object; write one object per line, and no list",
    ),
    "null in place of a later object": (
        '{"n":1}\nnull\n',
        {},
        "a.json, line 2: 'null' is not a json object; write one object per line, and no list",
    ),
    "a field named twice": (
        '{"n":1}\n{"n":1,"n":2}\n',
        {},
        "a.json, line 2: '{\"n\":1,\"n\":2}' has the field 'n' twice; rename one",
    ),
    "not UTF-8": (
        b'{"n":1}\n{"n":2,"s":"\xff"}\n',
        {},
        'a.json, line 2: \'{"n":2,"s":"\ufffd"}\' is not UTF-8; correct it, or set '
        "inputs.visits.json.encoding",
    ),
    "a value that is not of the set type": (
        '{"n":1}\n{"n":"x"}\n',
        {"types": {"n": "int64"}},
        "a.json, line 2: column 'n' has \"x\", but inputs.visits.types.n is int64; "
        "correct one of them",
    ),
    "an invalid date": (
        '{"d":"2020-01-02"}\n{"d":"2020-13-02"}\n',
        {"types": {"d": "date32"}},
        "a.json, line 2: column 'd' has \"2020-13-02\", but "
        "inputs.visits.types.d is date32[day]; correct one of them",
    ),
    "a field of two types": (
        '{"m":1,"n":1}\n{"m":2,"n":"x"}\n',
        {},
        "a.json, line 2: field 'n' has the type string, but number on the lines before; give it "
        "one type, or select the columns to read, without it, in inputs.visits.columns",
    ),
    "a nested field of two types": (
        '{"m":{"n":1}}\n{"m":{"n":[]}}\n',
        {},
        "a.json, line 2: field 'm.n' has the type array, but number on the lines before; give it "
        "one type, or select the columns to read, without it, in inputs.visits.columns",
    ),
}


@pytest.mark.parametrize(("data", "spec", "expected"), JSON.values(), ids=JSON)
def test_a_bad_row_in_json_is_reported(
    tmp_path: Path, data: str | bytes, spec: dict[str, Any], expected: str
) -> None:
    assert message(tmp_path, "a.json", data, **spec) == expected


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (
            '{"n":1,"z":{"y":1}}',
            "field 'z' is not in the first lines of the input; set inputs.visits.types.z, or "
            "select the columns to read in inputs.visits.columns",
        ),
        (
            '{"n":1,"o":{"p":[{"r":1}]}}',
            "field 'o.p.r' is not in the first lines of the input; set inputs.visits.types.o, or "
            "select the columns to read in inputs.visits.columns",
        ),
        (
            '{"n":1.5}',
            f"column 'n' has 1.5, but its type was inferred as int64 {INFERRED}.n",
        ),
        (
            '{"o":{"p":[{"q":"a"}]}}',
            'column \'o\' has {"p": [{"q": "a"}]}, but its type was inferred as '
            f"struct<p: list<item: struct<q: int64>>> {INFERRED}.o",
        ),
    ],
)
@pytest.mark.parametrize("split_bytes", [100_000, 1 << 30])
def test_a_json_row_that_differs_from_the_first_lines_is_reported(
    tmp_path: Path, last: str, expected: str, split_bytes: int
) -> None:
    lines = '{"n":1,"o":{"p":[{"q":1}]}}\n' * 60_000
    (tmp_path / "a.json").write_text(f"{lines}{last}\n")
    error = failure(tmp_path, "a.json", split_bytes)
    assert str(error) == f"{tmp_path}/a.json, line 60001: {expected}{SKIP}"


def test_json_fields_that_are_not_selected_may_change_type(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"m":1,"n":1}\n{"n":"x","m":2,"new":[]}\n')
    source = open_source("visits", InputSpec(path="a.json", columns=["m"]), tmp_path, {}, 1000)
    (batch,) = source.reader.read(source.splits[0])
    assert batch.to_pydict() == {"m": [1, 2]}


@pytest.mark.parametrize("data", [b"", b"\n\r\n\n"])
@pytest.mark.parametrize("name", ["a.csv", "a.json"])
def test_an_input_with_only_empty_files_is_refused(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    error = failure(tmp_path, name)
    assert type(error) is InputError
    assert str(error).startswith("inputs.visits.path: ")
    assert f"{tmp_path}/{name}" in str(error)
    assert "empty" in str(error)


def test_a_truncated_gzip_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(
        gzip.compress(b"n\n" + os.urandom(9000).hex().encode())[:-99]
    )
    error = failure(tmp_path, "a.csv.gz")
    assert type(error) is InputError
    assert re.fullmatch(
        rf"{tmp_path}/a\.csv\.gz cannot be read as csv: .*; the file is truncated, damaged or "
        "in another format",
        str(error),
    )
