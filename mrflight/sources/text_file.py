"""Open text files: each is decompressed, and transcoded if it has to be read as one stream."""

from __future__ import annotations

import msgspec
import pyarrow as pa

from mrflight.errors import InputError
from mrflight.sources.formats import compression_of
from mrflight.sources.text_encoding import UTF_8, TextEncoding
from mrflight.storage import Location


class TextFile(msgspec.Struct, frozen=True):
    """A text file and its encoding. Offsets are those of the bytes that `open_text` gives."""

    location: Location
    encoding: TextEncoding = UTF_8

    @property
    def url(self) -> str:
        return self.location.url

    @property
    def has_ranges(self) -> bool:
        """Whether it can be read from anywhere, so that it can be cut into splits."""
        return not self.encoding.is_streamed and compression_of(self.location.path) is None


def open_text(file: TextFile, *, strict: bool = False) -> pa.NativeFile:
    """Open a file, decompress it according to its suffix, and transcode it if it is streamed.

    The caller closes it. Only a file that is neither can seek. ``strict``: see
    `TextEncoding.transcode`.
    """
    stream = file.location.open_input()
    codec = compression_of(file.location.path)
    plain = stream if codec is None else pa.CompressedInputStream(stream, codec)
    return file.encoding.transcode(plain, file.url, strict=strict)


def skip_bytes(stream: pa.NativeFile, count: int) -> None:
    """Advance a stream that was just opened by ``count`` bytes."""
    if stream.seekable():
        stream.seek(count)
        return
    while count > 0:
        skipped = len(stream.read(min(count, 1 << 20)))
        if skipped == 0:
            raise InputError("the file became shorter while it was read")
        count -= skipped
