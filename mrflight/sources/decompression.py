"""Text files as plain bytes, compressed or not."""

from __future__ import annotations

import pyarrow as pa

from mrflight.errors import InputError
from mrflight.sources.formats import compression_of
from mrflight.storage import Location


def open_text(location: Location) -> pa.NativeFile:
    """Open a file for reads, decompressed as its suffix says; the caller closes it.

    Only a plain file can seek.
    """
    file = location.open_input()
    codec = compression_of(location.path)
    return file if codec is None else pa.CompressedInputStream(file, codec)


def skip_bytes(stream: pa.NativeFile, count: int) -> None:
    """Go on to ``count`` bytes from the start of a stream that was just opened."""
    if stream.seekable():
        stream.seek(count)
        return
    while count > 0:
        skipped = len(stream.read(min(count, 1 << 20)))
        if skipped == 0:
            raise InputError("the file became shorter while it was read")
        count -= skipped
