"""Tests of byte ranges of text: wherever the bounds are, every line is in exactly one range."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrflight.errors import InputError
from mrflight.sources import lines
from mrflight.sources.base import Split, split_runs
from mrflight.sources.chunk import Chunk, has_lines
from mrflight.sources.lines import read_chunks
from mrflight.sources.text_file import TextFile
from mrflight.sources.text_source import split_bytes_evenly
from mrflight.storage import locate
from mrflight.storage.store import FileVersion
from tests.support.suite.messages import refused

line = st.binary(max_size=40).map(lambda data: data.replace(b"\n", b"").replace(b"\r", b""))
line_end = st.sampled_from([b"\n", b"\r\n"])


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """Draw lines of any length, some of them far longer than the rest, with either line end."""
    parts = draw(st.lists(st.tuples(line, st.sampled_from([1, 1, 1, 20]), line_end), max_size=20))
    last = draw(line)
    return b"".join(text * times + end for text, times, end in parts) + last


def chunks_of(data: bytes, first: int, start: int, stop: int | None, size: int) -> list[Chunk]:
    """Return copies of the chunks, because a chunk is only valid until the next one."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        chunks = read_chunks(TextFile(locate(file.name, Path("/"))), first, start, stop, size)
        return [Chunk(chunk.parts, bytearray(bytes(chunk)), chunk.size) for chunk in chunks]


@given(data=texts(), cuts=st.lists(st.integers(0, 600), max_size=6), size=st.integers(1, 64))
def test_ranges_that_cover_a_file_read_every_line_once(
    data: bytes, cuts: list[int], size: int
) -> None:
    bounds = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    read = b""
    for start, stop in pairwise(bounds):
        for chunk in chunks_of(data, 0, start, stop, size):
            (part,) = chunk.parts
            assert (part.offset, part.start) == (len(read), 0)
            assert part.offset == 0 or data[part.offset - 1 : part.offset] == b"\n"
            read += bytes(chunk)
    assert read == data


@given(data=texts(), start=st.integers(0, 400), length=st.integers(0, 200))
def test_a_line_belongs_to_the_range_of_its_first_byte(
    data: bytes, start: int, length: int
) -> None:
    expected, at = b"", 0
    for text in data.split(b"\n"):
        if start <= at < start + length:
            expected += data[at : at + len(text) + 1]
        at += len(text) + 1
    read = chunks_of(data, 0, start, start + length, 16)
    assert b"".join(map(bytes, read)) == expected


@given(data=texts(), size=st.integers(1, 64))
def test_bytes_before_the_first_line_are_skipped(data: bytes, size: int) -> None:
    first = data.find(b"\n") + 1
    for cut in (0, 1, first, len(data)):
        ranges = [(0, cut), (cut, len(data))]
        read = [
            chunk for start, stop in ranges for chunk in chunks_of(data, first, start, stop, size)
        ]
        assert b"".join(map(bytes, read)) == data[first:]


@given(data=texts())
def test_without_a_stop_a_file_is_read_to_its_end(data: bytes) -> None:
    assert b"".join(map(bytes, chunks_of(data, 0, 0, None, 16))) == data


def test_a_range_inside_one_line_does_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a sparse file, which would take hours to read
    assert (
        list(read_chunks(TextFile(locate(str(path), tmp_path)), 0, 1 << 30, (1 << 30) + 1000)) == []
    )


def test_a_line_that_is_too_long_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1 << 20)
    path = tmp_path / "long.txt"
    path.write_bytes(b"ok\n" + b"x" * (3 << 20))
    with refused(InputError):
        list(read_chunks(TextFile(locate(str(path), tmp_path)), 0, 0, None, 1 << 16))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (b"a\nb\n", 2),
        (b"a\nb", 2),
        (b"a\r\nb\r\n", 2),
        (b"a\r\n\r\nb", 2),
        (b"\n\na\n\n\nb\n\n", 2),
        (b"a\rb\r", 2),
        (b"\n", 0),
        (b"\r\n\r\n", 0),
        (b"a", 1),
    ],
)
def test_lines_are_counted_without_blank_ones(text: bytes, count: int) -> None:
    assert has_lines(Chunk.of(text), count)
    assert not has_lines(Chunk.of(text), count + 9)


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 99, 100, 101, 12345])
@pytest.mark.parametrize("split_bytes", [1, 10, 100, 1 << 40])
def test_byte_splits_cover_a_file(size: int, split_bytes: int) -> None:
    splits = split_bytes_evenly("x", FileVersion(size), split_bytes)
    assert splits[0].start == 0
    assert splits[-1].stop == size
    assert all(a.stop == b.start for a, b in pairwise(splits))
    assert sum(split.size_bytes for split in splits) == size
    assert max(split.size_bytes for split in splits) <= split_bytes


@pytest.mark.parametrize(
    ("sizes", "runs"),
    [
        ([], [(0, 0)]),
        ([5], [(0, 1)]),
        ([50], [(0, 1)]),
        ([4, 4, 4, 4, 4], [(0, 2), (2, 4), (4, 5)]),
        ([4, 50, 4, 4], [(0, 1), (1, 2), (2, 4)]),
        ([0, 0, 0], [(0, 3)]),
    ],
)
def test_runs_are_as_large_as_the_limit_allows(
    sizes: list[int], runs: list[tuple[int, int]]
) -> None:
    splits = split_runs("x", FileVersion(sum(sizes)), sizes, 10)
    assert [(split.start, split.stop) for split in splits] == runs
    assert sum(split.size_bytes for split in splits) == sum(sizes)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100])
def test_a_split_is_divided_into_splits_that_cover_it(count: int) -> None:
    split = Split("x", 100, 107, 70, (("day", 3),))
    parts = split.divide(count)
    assert len(parts) == min(count, 7)
    assert [part.start for part in parts] + [107] == [100] + [part.stop for part in parts]
    assert sum(part.size_bytes for part in parts) == 70
    assert {part.constants for part in parts} == {split.constants}


def test_an_empty_split_and_a_whole_file_are_not_divided() -> None:
    assert Split("x", 0, 0, 0).divide(5) == [Split("x", 0, 0, 0)]
    assert Split("x.gz", 0, 1, 999).divide(5) == [Split("x.gz", 0, 1, 999)]
