"""Tells damage in SQLite's write-ahead log from a transaction that was not finished.

SQLite takes the first frame with a wrong checksum for the end of the log. That is right for the
last transaction, which a kill or a full disk can cut short before it is confirmed. A frame with
more than one transaction after it was damaged on the disk, and SQLite would forget, without a
word, events that had been confirmed.

The format is SQLite's own: https://sqlite.org/fileformat2.html#walformat.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

_HEADER = struct.Struct(">8I")
"""Magic, version, page size, checkpoint number, two salts, and the two sums of these 24 bytes."""
_FRAME = struct.Struct(">6I")
"""Page number, size of the database after a commit or else 0, two salts, and two sums."""
_WORDS = {0x377F0682: "<u4", 0x377F0683: ">u4"}
"""The order of bytes in which words are summed, by the magic of the header."""

Sums = tuple[int, int]


def is_damaged(log: Path) -> bool:
    """Return whether confirmed transactions lie behind a damaged part of a log.

    The log is ``journal-wal`` beside the database ``journal``, and no process may have it open. A
    log that does not exist is whole. It takes about 0.1 s for each MB, and SQLite's logs rarely
    exceed 4 MB.
    """
    data = log.read_bytes() if log.exists() else b""
    if len(data) <= _HEADER.size + _FRAME.size:
        return False
    magic, _, page_size, _, *salts, first, second = _HEADER.unpack_from(data)
    words = _WORDS.get(magic)
    sums = (first, second)
    if words is None or sums != _summed(data[:24], words, (0, 0)):
        return True
    is_whole, commits = True, 0
    step = _FRAME.size + page_size
    for start in range(_HEADER.size, len(data) - step + 1, step):
        _, size, *found, first, second = _FRAME.unpack_from(data, start)
        if found != salts:  # from before the last checkpoint, or damaged
            is_whole = False
            continue
        if is_whole:
            sums = _summed(data[start : start + 8], words, sums)
            sums = _summed(data[start + _FRAME.size : start + step], words, sums)
            is_whole = sums == (first, second)
        if not is_whole and size:
            commits += 1
    return commits > 1


def _summed(data: bytes, words: str, sums: Sums) -> Sums:
    """Return the sums continued over ``data``, the length of which is a multiple of 8."""
    first, second = sums
    values = np.frombuffer(data, words).tolist()
    for even, odd in zip(values[::2], values[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
