"""Byte ranges of text files, read as chunks of whole lines.

A line belongs to the range that contains its first byte. So ranges that cover a file without
overlap read every line once, wherever their bounds are.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from typing import TypeVar

import pyarrow as pa
from msgspec.structs import replace

from mrflight.errors import InputError
from mrflight.sources.chunk import CHUNK_BYTES, Chunk, Part
from mrflight.sources.text_file import TextFile, open_text, skip_bytes

K = TypeVar("K")

MAX_LINE_BYTES = 256 << 20
_LOOKAHEAD_BYTES = 64 << 10

# The decoders take 0.1 to 0.2 ms for a chunk however short it is, which is as long as for 64 KiB.
_SMALL_CHUNK_BYTES = 256 << 10
_USUAL_COMPRESSION = 16
"""Text that is compressed more than this is read in smaller chunks."""


def read_chunks(
    file: TextFile, first: int, start: int, stop: int | None, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[Chunk]:
    """Yield the lines whose first byte is in ``start`` to ``stop``, but not before ``first``.

    ``first`` is where a line begins, for example after a header. A ``stop`` of None is the end of
    the file. A file without ranges can only be read from ``first`` to its end. A chunk is valid
    until the next one is requested, because all chunks share one window.
    """
    with open_text(file) as stream:
        begin = first if start <= first else _next_line(stream, start, stop)
        if begin is None or (stop is not None and begin >= stop):
            return
        skip_bytes(stream, begin)
        most = _bytes_left(stream, file, begin)
        for lines in _chunks(stream, begin, stop, min(chunk_bytes, most + 1)):
            if lines is None:
                raise InputError(
                    f"{file.url} has a line of more than {MAX_LINE_BYTES >> 20} MiB; it does "
                    "not seem to be text with a newline after each line"
                )
            offset, window, size = lines
            yield Chunk((Part(file, offset, counted_from=offset),), window, size)


def _bytes_left(stream: pa.NativeFile, file: TextFile, begin: int) -> int:
    """Return about how many bytes follow ``begin``: a window for 4 MiB takes up to 2 ms to make."""
    if stream.seekable():
        return max(0, stream.size() - begin)
    version = file.location.version
    if version is None:
        return CHUNK_BYTES
    return _USUAL_COMPRESSION * version.size_bytes + _LOOKAHEAD_BYTES


def join_chunks(chunks: Iterable[tuple[K, Chunk]]) -> Iterator[tuple[K, Chunk]]:
    """Yield the same lines, with small chunks that follow one another joined.

    Each chunk comes with a key, and only chunks with the same key, the same object, are joined. A
    line end is added to a last line that has none, and a byte order mark is left out.
    """
    window, parts, key = bytearray(), list[Part](), None
    for of_chunk, chunk in chunks:
        is_small = chunk.size <= _SMALL_CHUNK_BYTES
        fits = is_small and of_chunk is key and len(window) + chunk.size <= CHUNK_BYTES
        if parts and key is not None and not fits:
            yield key, Chunk(tuple(parts), window, len(window))
            window, parts = bytearray(), []
        if not is_small:
            yield of_chunk, chunk
            continue
        key = of_chunk
        (part,) = chunk.parts
        parts.append(replace(part, start=len(window)))
        has_mark = part.offset == 0 and chunk.window.startswith(BOM_UTF8)
        window += memoryview(chunk.window)[len(BOM_UTF8) * has_mark : chunk.size]
        if not window.endswith(b"\n"):
            window += b"\n"
    if parts and key is not None:
        yield key, Chunk(tuple(parts), window, len(window))


def _next_line(stream: pa.NativeFile, start: int, stop: int | None) -> int | None:
    """Return where the first line at or after ``start`` begins; None if not before ``stop``."""
    at = start - 1
    stream.seek(at)
    while (stop is None or at < stop) and (block := stream.read(_LOOKAHEAD_BYTES)):
        found = block.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(block)
    return None


def _chunks(
    stream: pa.NativeFile, begin: int, stop: int | None, chunk_bytes: int
) -> Iterator[tuple[int, bytearray, int] | None]:
    """Yield lines from ``begin``, the stream's position; None instead of a line too long.

    They come with their offset in the file, as the first bytes of a window, and with their size.
    """
    window, kept = bytearray(), 0
    while True:
        room = chunk_bytes if stop is None else min(chunk_bytes, stop - begin + _LOOKAHEAD_BYTES)
        room = max(room, 2 * kept)  # doubles as long as no line ends in what was read
        if kept > MAX_LINE_BYTES:
            yield None
        if room > len(window):
            window = window[:kept] + bytes(room - kept)
        filled = _fill(stream, memoryview(window)[:room], kept)
        size, is_last = _end_of_lines(window, filled, filled < room, begin, stop)
        if size:
            yield begin, window, size
        if is_last:
            return
        kept = filled - size
        window[:kept] = window[size:filled]
        begin += size


def _fill(stream: pa.NativeFile, window: memoryview, filled: int) -> int:
    """Read until the window is full or the stream ends; return how many bytes are filled."""
    while filled < len(window):
        count = stream.readinto(window[filled:])
        if count == 0:
            break
        filled += count
    return filled


def _end_of_lines(
    window: bytearray, filled: int, ended: bool, begin: int, stop: int | None
) -> tuple[int, bool]:
    """Return how many bytes are whole lines of this range, and whether they are its last ones."""
    if stop is not None:
        found = window.find(b"\n", max(0, stop - 1 - begin), filled)
        if found >= 0:
            return found + 1, True
    if ended:
        return filled, True
    return window.rfind(b"\n", 0, filled) + 1, False
