"""The dialects of csv: any of them is read as Python's csv module and DuckDB read it."""

from __future__ import annotations

import csv
import io
import tempfile
from datetime import datetime
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from mrflight.config.text_options import CsvOptions
from tests.support.jobs.source_contract import ONE_LINE, open_at, read
from tests.support.suite.examples import some_of

ENCODINGS = ["utf-8", "utf-8", "utf-16", "utf-32-be", "windows-1252", "shift_jis", "iso2022_jp"]
COLUMNS = ["share", "word", "seen"]


def dialects() -> st.SearchStrategy[CsvOptions]:
    """Draw a dialect that can be read without loss."""
    return st.builds(
        CsvOptions,
        delimiter=st.sampled_from([",", ";", "|", "\t"]),
        quote=st.sampled_from(['"', "'", ""]),
        escape=st.sampled_from([None, "\\"]),
        decimal=st.sampled_from([".", ","]),
        skip_rows=st.integers(0, 3),
        header=st.booleans(),
        null_values=st.sampled_from([None, ["-", "nil", ""]]),
        timestamp_formats=st.just(["%d.%m.%Y %H:%M:%S"]),
        comment=st.sampled_from([None, "#"]),
        encoding=st.sampled_from(ENCODINGS),
        thousands=st.sampled_from([None, None, ".", ",", " ", "'"]),
        allow_missing_columns=st.booleans(),
        newlines_in_values=st.sampled_from([False, False, True]),
    ).filter(is_possible)


def is_possible(options: CsvOptions) -> bool:
    if options.thousands in (options.decimal, options.quote):
        return False
    if options.thousands == options.delimiter and not options.quote:
        return False
    return options.delimiter != options.decimal and bool(options.quote or options.escape)


def in_dialect(
    table: pa.Table, fields: list[int], options: CsvOptions, *, quotes_all: bool
) -> bytes:
    """Return what Python's csv module writes, after lines to skip and between comments.

    ``fields`` are the numbers of fields of the rows.
    """
    out = io.StringIO()
    comment = "" if options.comment is None else f"{options.comment} not \"a' line\n"
    quoting = csv.QUOTE_ALL if quotes_all else csv.QUOTE_MINIMAL
    rows = csv.writer(
        out,
        delimiter=options.delimiter,
        quotechar=options.quote or None,
        quoting=quoting if options.quote else csv.QUOTE_NONE,
        escapechar=options.escape,
        doublequote=options.escape is None,
        lineterminator="\n",
    )
    if options.header:
        out.write(comment)
        rows.writerow(table.column_names)
    columns = (column.to_pylist() for column in table.columns)
    for count, share, word, seen in zip(fields, *columns, strict=True):
        out.write(comment)
        number = "" if share is None else number_in_dialect(share, options)
        rows.writerow([number, word, seen and f"{seen:%d.%m.%Y %H:%M:%S}"][:count])
    notes = "a \"line\", 'of' notes\n" * options.skip_rows
    return (notes + out.getvalue() + comment).encode(options.encoding)


def number_in_dialect(number: float, options: CsvOptions) -> str:
    text = f"{number:,}" if options.thousands else str(number)
    marks = {",": options.thousands or "", ".": options.decimal}
    return "".join(marks.get(character, character) for character in text)


@hypothesis_settings(max_examples=some_of(40))
@given(
    options=dialects(),
    values=st.lists(
        st.tuples(
            st.one_of(st.sampled_from(["-", "", "NA", 'a\\"b', "it's", "#1\n#2"]), ONE_LINE),
            st.none() | st.floats(-1e9, 1e9).map(lambda x: round(x, 3)),
            st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)),
            st.integers(2, 3),
        ),
        min_size=1,
        max_size=20,
    ),
    split_bytes=st.integers(1, 300),
    quotes_all=st.booleans(),
)
def test_any_dialect_split_anywhere(
    options: CsvOptions,
    values: list[tuple[str, float | None, datetime, int]],
    split_bytes: int,
    quotes_all: bool,
) -> None:
    options = msgspec.structs.replace(options, column_names=None if options.header else COLUMNS)
    encoding, line_end = options.encoding, "\n" if options.newlines_in_values else " "
    words = [
        word.encode(encoding, "ignore").decode(encoding, "ignore").replace("\n", line_end)
        for word, *_ in values
    ]
    fields = [count if options.allow_missing_columns else 3 for *_, count in values]
    times = [
        seen.replace(microsecond=0) if count == 3 else None
        for (*_, seen, _), count in zip(values, fields, strict=True)
    ]
    table = pa.table(
        {
            "share": pa.array([share for _, share, *_ in values], "double"),
            "word": pa.array(words, "string"),
            "seen": pa.array(times, "timestamp[s]"),
        }
    )
    types = {field.name: str(field.type) for field in table.schema}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.csv")
        path.write_bytes(in_dialect(table, fields, options, quotes_all=quotes_all))
        source = open_at(Path(folder), "x.csv", split_bytes, types=types, csv=options)
        nulls = options.null_values or ()
        words = [None if word in nulls else word for word in words]
        assert read(source) == table.set_column(1, "word", pa.array(words, "string"))


def test_a_messy_file_is_read_as_duckdb_reads_it(tmp_path: Path) -> None:
    import duckdb

    (tmp_path / "x.csv").write_text(
        "Report of May\n\nday;city;share\n05.03.2024;'it''s';1,5\n06.03.2024;-;-\n"
    )
    options = CsvOptions(
        delimiter=";",
        quote="'",
        decimal=",",
        skip_rows=2,
        null_values=["-"],
        timestamp_formats=["%d.%m.%Y"],
    )
    found = read(open_at(tmp_path, "x.csv", 5, csv=options))
    assert str(found.schema.field("day").type) == "timestamp[us]"
    quote = "''''"
    oracle = duckdb.sql(
        f"select * from read_csv('{tmp_path}/x.csv', delim=';', quote={quote}, escape={quote}, "
        "skip=2, header=true, nullstr='-', decimal_separator=',', timestampformat='%d.%m.%Y', "
        "types={'day': 'timestamp', 'city': 'varchar', 'share': 'double'})"
    )
    assert [tuple(row.values()) for row in found.to_pylist()] == oracle.fetchall()


# As docs/reference/job-file.md lists them.
NULLS = ["", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND"]
NULLS += ["1.#QNAN", "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null"]


@pytest.mark.parametrize("strings", [False, True])
def test_what_is_null_by_default(tmp_path: Path, strings: bool) -> None:
    lines = [f"{text},{text}\n" for text in NULLS]
    (tmp_path / "x.csv").write_text("n,word\n1,a\n" + "".join(lines))
    options = CsvOptions(strings_can_be_null=strings)
    found = read(open_at(tmp_path, "x.csv", csv=options)).to_pydict()
    assert found["n"] == [1] + [None] * len(NULLS)
    assert found["word"] == ["a"] + ([None] * len(NULLS) if strings else NULLS)
