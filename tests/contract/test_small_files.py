"""Folders of small files, read as packed splits: the rows of plain Python, and errors with a place.

Hypothesis makes the folders: with files that are empty, that end in their last line, that begin
with a byte order mark, that are compressed, and that have their columns in another order.
"""

from __future__ import annotations

import gzip
import io
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from mrflight.config.input_spec import InputSpec
from mrflight.config.text_options import CsvOptions
from mrflight.errors import InputError, SchemaMismatchError
from mrflight.sources import open_source
from mrflight.sources.base import Reader, Source, Split
from mrflight.sources.csv_header import HEADER_BLOCK_BYTES
from mrflight.sources.packed_reader import PackedReader
from mrflight.sources.packing import OPEN_BYTES, pack
from mrflight.storage import Location
from mrflight.system.side_by_side import side_by_side
from tests.support.suite.examples import some_of
from tests.support.suite.messages import refused
from tests.unit.storage.test_whole_files import SlowDisk

Row = tuple[int | None, str, float]
COLUMNS = ("n", "word", "share")
SCHEMA = pa.schema({"n": pa.int64(), "word": pa.string(), "share": pa.float64()})
TYPES = {"n": "int64", "word": "string", "share": "double"}

row = st.tuples(
    st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
    st.sampled_from(["", "plain", "a,b", 'say "a"', "çé", "日本", " x ", "#", "\t"]),
    st.sampled_from([0.5, -1e300, 3.0]),
)


def quoted(value: object) -> str:
    if value is None:
        return ""
    return '"' + value.replace('"', '""') + '"' if isinstance(value, str) else str(value)


def as_csv(rows: Sequence[Row], order: Sequence[int], end: str) -> bytes:
    lines = [",".join(COLUMNS[i] for i in order)]
    lines += [",".join(quoted(row[i]) for i in order) for row in rows]
    return end.join(lines).encode()


def as_json(rows: Sequence[Row], order: Sequence[int], end: str) -> bytes:
    objects = ({COLUMNS[i]: row[i] for i in order} for row in rows)
    return end.join(json.dumps(each) for each in objects).encode()


def as_table(rows: Sequence[Row], order: Sequence[int]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * 3
    return pa.table(list(map(list, columns)), SCHEMA).select([COLUMNS[i] for i in order])


def as_parquet(rows: Sequence[Row], order: Sequence[int], end: str) -> bytes:
    out = io.BytesIO()
    pa.parquet.write_table(as_table(rows, order), out, row_group_size=3)
    return out.getvalue()


def as_arrow(rows: Sequence[Row], order: Sequence[int], end: str) -> bytes:
    out, table = io.BytesIO(), as_table(rows, order)
    with pa.ipc.new_file(out, table.schema) as file:
        file.write_table(table, max_chunksize=2)
    return out.getvalue()


Encode = Callable[[Sequence[Row], Sequence[int], str], bytes]
FORMATS: dict[str, Encode] = {
    "csv": as_csv,
    "json": as_json,
    "parquet": as_parquet,
    "arrow": as_arrow,
}


@st.composite
def folders(draw: st.DrawFn) -> tuple[str, list[tuple[str, bytes]], list[Row]]:
    """Draw a format, the names and bytes of files, and the rows that they have in their order."""
    format = draw(st.sampled_from(list(FORMATS)))
    is_text = format in ("csv", "json")
    files, expected = [], []
    for number in range(draw(st.integers(1, 12))):
        rows = draw(st.lists(row, max_size=6))
        order = draw(st.sampled_from([(0, 1, 2), (0, 1, 2), (2, 0, 1)]))
        end = draw(st.sampled_from(["\n", "\r\n"])) if is_text else ""
        data = FORMATS[format](rows, order, end)
        name = f"{number:02}.{format}"
        if is_text:
            data = draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + data if data else data
            data += draw(st.sampled_from([b"", end.encode()]))
            if draw(st.integers(0, 9)) == 0:
                data, rows = b"", []
            if draw(st.integers(0, 4)) == 0:
                data, name = gzip.compress(data), f"{name}.gz"
        files.append((name, data))
        expected += rows
    return format, files, expected


def opened(folder: Path, format: str, **spec: Any) -> Source:
    types = TYPES if format in ("csv", "json") else {}
    return open_source(
        "rows", InputSpec(path=".", format=format, types=types, **spec), folder, {}, 1 << 30
    )


def in_a_store(reader: Reader) -> PackedReader:
    """Return the reader as of a store with latency, from which files are fetched ahead."""
    assert isinstance(reader, PackedReader)
    of_files = reader.reader
    root = structs.replace(of_files.root, store=SlowDisk(at_read=str))
    return replace(reader, reader=replace(of_files, root=root))


def rows_of(batches: Iterator[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in COLUMNS) for batch in batches for row in batch.to_pylist()]


def read(reader: Reader, splits: Sequence[Split]) -> list[tuple[Any, ...]]:
    return [row for split in splits for row in rows_of(reader.read(split))]


@pytest.mark.slow
@settings(max_examples=some_of(40))
@given(folders(), st.integers(0, 12), st.booleans())
def test_packed_splits_have_the_rows_of_all_files_in_order(
    drawn: tuple[str, list[tuple[str, bytes]], list[Row]], files: int, is_quoted: bool
) -> None:
    format, written, expected = drawn
    has_no_schema = format in ("csv", "json") and not any(
        data for name, data in written if not name.endswith(".gz") or gzip.decompress(data)
    )
    with tempfile.TemporaryDirectory() as name:
        for file, data in written:
            (Path(name) / file).write_bytes(data)
        if has_no_schema or (format == "json" and not expected):
            return
        spec = {"csv": CsvOptions(newlines_in_values=is_quoted)} if format == "csv" else {}
        source = opened(Path(name), format, **spec)
        packs = list(pack(source.splits, files * OPEN_BYTES + 300))
        assert read(source.reader, packs) == expected
        assert read(in_a_store(source.reader), packs) == expected
        assert read(source.reader, source.splits) == expected


FILES = 200
BAD = 17
"""Not among the files whose first lines decide the types."""

BAD_LINES = {
    "too few fields": ("csv", b"1,a\n", "line 4: 2 fields for 3 columns"),
    "a wrong type": ("csv", b"x,a,0.5\n", "line 4: column 'n' has 'x'"),
    "an open quote": ("csv", b'1,"a,0.5\n', "line 4: a quoted value does not end on its line"),
    "no json": ("json", b'{"n": 1,\n', "line 3: '{\"n\": 1,' is not one json object"),
    "another type": ("json", b'{"n": "x"}\n', "line 3: column 'n' has"),
}


@pytest.mark.slow_but(
    "an open quote-disk", "too few fields-disk", "no json-disk", "a wrong type-disk"
)
@pytest.mark.parametrize("is_slow", [False, True], ids=["disk", "store"])
@pytest.mark.parametrize(("format", "line", "message"), BAD_LINES.values(), ids=BAD_LINES)
def test_a_bad_line_is_told_with_its_file_and_its_number_there(
    tmp_path: Path, format: str, line: bytes, message: str, is_slow: bool
) -> None:
    for number in range(FILES):
        rows: list[Row] = [(number, "a", 0.5), (number, "b", 0.5)]
        data = FORMATS[format](rows, (0, 1, 2), "\n") + b"\n"
        bad = line if number == BAD else b""
        (tmp_path / f"{number:03}.{format}").write_bytes(data + bad)
    source = opened(tmp_path, format)
    reader = in_a_store(source.reader) if is_slow else source.reader
    (packed,) = pack(source.splits, 1 << 30)
    with pytest.raises(InputError) as raised:
        list(reader.read(packed))
    assert str(raised.value).startswith(f"{tmp_path}/{BAD:03}.{format}, {message}")


@pytest.mark.parametrize("format", list(FORMATS))
def test_a_file_with_other_columns_is_told(tmp_path: Path, format: str) -> None:
    for number in range(FILES):
        order = (0, 2) if number == BAD else (0, 1, 2)
        rows: list[Row] = [(number, "a", 0.5)]
        (tmp_path / f"{number:03}.{format}").write_bytes(FORMATS[format](rows, order, "\n"))
    if format == "json":  # a field that is missing is null
        source = opened(tmp_path, format)
        (packed,) = pack(source.splits, 1 << 30)
        words = ["a"] * FILES
        words[BAD] = None  # type: ignore[call-overload]
        assert [row[1] for row in read(source.reader, [packed])] == words
        return
    with refused(SchemaMismatchError):
        opened(tmp_path, format)


def test_headers_that_differ_after_their_first_block_are_not_taken_for_the_same(
    tmp_path: Path,
) -> None:
    """The block ends with a line end, which is within a name."""
    for number in range(2):
        name = "x" * (HEADER_BLOCK_BYTES - 2) + f"\n{number}"
        (tmp_path / f"{number}.csv").write_text(f'"{name}",n\n1,2\n')
    spec = InputSpec(path=".", csv=CsvOptions(newlines_in_values=True))
    with pytest.raises(SchemaMismatchError, match=r"1\.csv has no column"):
        open_source("rows", spec, tmp_path, {}, 1 << 30)


@pytest.mark.parametrize("format", list(FORMATS))
def test_a_file_that_changes_is_told(tmp_path: Path, format: str) -> None:
    for number in range(FILES):
        rows: list[Row] = [(number, "a", 0.5)]
        (tmp_path / f"{number:03}.{format}").write_bytes(FORMATS[format](rows, (0, 1, 2), "\n"))
    source = opened(tmp_path, format)
    (packed,) = pack(source.splits, 1 << 30)
    with (tmp_path / f"{BAD:03}.{format}").open("ab") as file:
        file.write(b"\n")
    for reader in (source.reader, in_a_store(source.reader)):
        with refused(InputError):
            list(reader.read(packed))


@pytest.mark.parametrize("format", ["csv", "parquet"])
@pytest.mark.everywhere
def test_packed_splits_in_every_store(place: Location, format: str) -> None:
    def put(number: int, word: str = "a") -> None:
        with place.child(f"{number}.{format}").create() as file:
            file.write(FORMATS[format]([(number, word, 0.5)], (0, 1, 2), "\n"))

    list(side_by_side(put, range(6), 6))
    source = open_source("rows", InputSpec(path=place.url), Path("/"), place.options, 1 << 30)
    (packed,) = pack(source.splits, 1 << 30)
    assert [row[0] for row in read(source.reader, [packed])] == [*range(6)]
    put(4, "another")
    with pytest.raises(InputError, match=rf"4\.{format} changed while the job ran: it had"):
        list(source.reader.read(packed))


def test_large_chunks_are_not_joined_with_small_ones(tmp_path: Path) -> None:
    """Nor is a file's end with the next file's begin, if that makes too large a batch."""
    counts = [5, 40_000, 3, 200_000, 1, 1, 90_000, 7]
    for number, count in enumerate(counts):
        rows: list[Row] = [(at, "a word", 0.5) for at in range(count)]
        (tmp_path / f"{number:03}.csv").write_bytes(as_csv(rows, (0, 1, 2), "\n"))
    source = opened(tmp_path, "csv")
    (packed,) = pack(source.splits, 1 << 30)
    for reader in (source.reader, in_a_store(source.reader)):
        batches = list(reader.read(packed))
        numbers = pa.Table.from_batches(batches)["n"].to_pylist()
        assert numbers == [at for count in counts for at in range(count)]
        assert max(batch.nbytes for batch in batches) < 16 << 20
