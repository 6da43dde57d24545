"""The file that a partition is spilled to: the bodies of its blocks, one after the other.

Only the server knows where each block is. The file is of no use without it: the
maps of a server that died write their blocks again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from mrflight.errors import SpillError
from mrflight.shuffle.wire.block import Block
from mrflight.system.closeable import Closeable
from mrflight.system.positioned_write import write_all


class SpilledBlock(NamedTuple):
    """The position of a block in the file, and its hash, which is checked when it is decoded."""

    offset: int
    size: int
    rows: int
    xxh3: int


def append_blocks(path: Path, offset: int, blocks: Sequence[Block]) -> list[SpilledBlock]:
    """Write blocks one after the other from ``offset`` on, and return where each is.

    If it raises OSError, the file is as long as before, unless the system does not allow that.
    """
    spilled = []
    bodies = [memoryview(block.body) for block in blocks]
    end = offset
    for block in blocks:
        spilled.append(SpilledBlock(end, block.body.size, block.rows, block.xxh3))
        end += block.body.size
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        write_all(file, offset, bodies)
    except OSError:
        with suppress(OSError):  # the next append overwrites what is too much
            os.ftruncate(file, offset)
        raise
    finally:
        os.close(file)
    return spilled


class SpillFile(Closeable):
    """The file of a partition for one reader, opened by its first read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def read(self, run: Sequence[SpilledBlock]) -> list[Block]:
        """Read adjacent blocks at once.

        Raises SpillError if the file cannot be read or ends too early. The hashes are not checked.
        """
        start = run[0].offset
        data = pa.allocate_buffer(sum(block.size for block in run))
        try:
            if self._file < 0:
                self._file = os.open(self._path, os.O_RDONLY)
            self._fill(memoryview(data), start)
        except OSError as error:
            raise SpillError(
                f"cannot read {self._path}: {error}; the maps of its blocks must run again"
            ) from error
        return [
            Block(block.rows, data.slice(block.offset - start, block.size), block.xxh3)
            for block in run
        ]

    def _fill(self, target: memoryview, offset: int) -> None:
        while target.nbytes:
            read = os.preadv(self._file, [target], offset)
            if read == 0:
                raise OSError(errno.EIO, f"it ends at byte {offset}, {target.nbytes} too early")
            target = target[read:]
            offset += read
