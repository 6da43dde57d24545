"""Finding the one line of a chunk that cannot be read; used only once something failed."""

from __future__ import annotations

import io
from collections.abc import Callable

from mrflight.sources.lines import Chunk, count_newlines_before
from mrflight.storage import Location


def first_bad_line(chunk: Chunk, decode: Callable[[Chunk], object]) -> tuple[int, bytes] | None:
    """Index and bytes of the first line that ``decode`` fails on, after all before it.

    None where every line decodes. Halves the chunk, so it costs about as much
    as a few reads of it: pyarrow's messages do not always say the row.
    """
    lines = io.BytesIO(bytes(chunk)).readlines()
    good, bad = 0, len(lines) + 1
    while bad - good > 1:
        middle = (good + bad) // 2
        if _decodes(b"".join(lines[:middle]), decode):
            good = middle
        else:
            bad = middle
    return (good, lines[good]) if good < len(lines) else None


def _decodes(data: bytes, decode: Callable[[Chunk], object]) -> bool:
    try:
        decode(Chunk.of(data))
    except ValueError:  # pyarrow's ArrowInvalid and UnicodeDecodeError are both of this kind
        return False
    return True


def line_number(location: Location, chunk: Chunk, index: int) -> int:
    """The number in its file, from 1, of a line of a chunk."""
    return count_newlines_before(location, chunk.offset) + index + 1


def shortened(text: str, limit: int = 100) -> str:
    """Text of a bad row as a message shows it."""
    text = text.rstrip("\r\n")
    return text if len(text) <= limit else f"{text[:limit]}..."
