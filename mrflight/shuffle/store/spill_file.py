"""The file that a partition is spilled to: bodies of blocks one behind the other, no more.

What lies where is known to the server alone. Nobody could use the file without
it: the blocks of a server that died are made again by their maps.
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

_MOST_VECTORS = os.sysconf("SC_IOV_MAX")


class SpilledBlock(NamedTuple):
    """Where a block lies, and the hash that it came with: whoever decodes it checks that."""

    offset: int
    size: int
    rows: int
    xxh3: int


def append_blocks(path: Path, offset: int, blocks: Sequence[Block]) -> list[SpilledBlock]:
    """Write blocks one behind the other from ``offset`` on; where each lies.

    OSError leaves the file as long as it was, as far as the system allows.
    """
    spilled = []
    bodies = [memoryview(block.body) for block in blocks]
    end = offset
    for block in blocks:
        spilled.append(SpilledBlock(end, block.body.size, block.rows, block.xxh3))
        end += block.body.size
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        _write_all(file, offset, [body for body in bodies if body.nbytes])
    except OSError:
        with suppress(OSError):  # what is too much is written over by the next append
            os.ftruncate(file, offset)
        raise
    finally:
        os.close(file)
    return spilled


def _write_all(file: int, offset: int, bodies: list[memoryview]) -> None:
    first = 0
    while first < len(bodies):
        written = os.pwritev(file, bodies[first : first + _MOST_VECTORS], offset)
        if written == 0:
            raise OSError(errno.EIO, "nothing more is written")
        offset += written
        while first < len(bodies) and written >= bodies[first].nbytes:
            written -= bodies[first].nbytes
            first += 1
        if written:
            bodies[first] = bodies[first][written:]


class SpillFile(Closeable):
    """A partition's file for one reader, opened by its first read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def read(self, run: Sequence[SpilledBlock]) -> list[Block]:
        """Blocks that lie one behind the other, in one read.

        SpillError where the file cannot be read, or ends too early. That the
        bytes are those that were written is not checked.
        """
        start = run[0].offset
        data = pa.allocate_buffer(sum(block.size for block in run))
        try:
            if self._file < 0:
                self._file = os.open(self._path, os.O_RDONLY)
            self._fill(memoryview(data), start)
        except OSError as error:
            raise SpillError(
                f"cannot read {self._path}: {error}; the maps of its blocks must be redone"
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
