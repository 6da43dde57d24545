"""The numbers of lines in their files, which messages name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from mrflight.sources.chunk import CHUNK_BYTES, Chunk, Part, count_newlines
from mrflight.sources.text_file import TextFile, open_text, skip_bytes

_MIN_COUNTED_BYTES = 1 << 20
_MAX_COUNTED_FILES = 64
_counted: dict[TextFile, tuple[int, int]] = {}
"""How far this process has counted the line ends of large files, and how many there were."""


def count_lines(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Yield consecutive chunks of one file with the number of lines before each.

    So the number of a line is known without another read of those before it.
    """
    lines, counted_from = 0, None
    for chunk in chunks:
        (part,) = chunk.parts
        counted_from = part.offset if counted_from is None else counted_from
        numbered = replace(part, lines=lines, counted_from=counted_from)
        yield replace(chunk, parts=(numbered,))
        lines += count_newlines(chunk)


def line_number(chunk: Chunk, index: int) -> int:
    """Return the number, from 1, that a line of a chunk has in its file."""
    part, before = chunk.part_of(index)
    return first_line_number(part) + index - before


def first_line_number(part: Part) -> int:
    """Return the number, from 1, that the first line of a part has in its file."""
    return count_newlines_before(part.file, part.counted_from) + part.lines + 1


def count_newlines_before(file: TextFile, offset: int) -> int:
    """Count the line ends in the first ``offset`` bytes, which are read for that.

    This goes on from where it was before in the same file. So the maps that one worker runs read a
    large file once for this, and not once each.
    """
    at, count = _counted.get(file, (0, 0)) if file.has_ranges else (0, 0)
    if at > offset:
        at = count = 0
    with open_text(file) as stream:
        skip_bytes(stream, at)
        while at < offset and (block := stream.read(min(offset - at, CHUNK_BYTES))):
            count += block.count(b"\n")
            at += len(block)
    if file.location.version is not None and at >= _MIN_COUNTED_BYTES:
        while len(_counted) >= _MAX_COUNTED_FILES:
            _counted.popitem()
        _counted[file] = at, count
    return count
