"""Counts the bytes that processes copy, by a library that is preloaded into them."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest


class CopiedBytes(NamedTuple):
    """The bytes that a process has copied, by the call; copies of less than 1 KiB are left out."""

    in_memory: float = 0.0
    """By ``memcpy`` and ``memmove``."""
    sent: float = 0.0
    """To a socket, by ``send`` and its relatives."""
    received: float = 0.0
    written: float = 0.0
    """To a file, which may be in memory, by ``write`` and its relatives."""
    read: float = 0.0

    @classmethod
    def of(cls, folder: Path, pid: int) -> CopiedBytes:
        """Return what a process that counts in a folder has copied so far."""
        return cls(*struct.unpack("5Q", (folder / str(pid)).read_bytes()))

    def since(self, before: CopiedBytes) -> CopiedBytes:
        return CopiedBytes(*(now - then for now, then in zip(self, before, strict=True)))

    def __truediv__(self, size: int) -> CopiedBytes:
        return CopiedBytes(*(number / size for number in self))


def counting(folder: Path) -> dict[str, str]:
    """Return the environment of processes that count in a folder; skip without a compiler."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler, cc, is installed")
    library, source = folder / "copied_bytes.so", Path(__file__).with_suffix(".c")
    options = ["-O2", "-fno-builtin", "-shared", "-fPIC", "-Wall", "-Werror"]
    subprocess.run(["cc", *options, "-o", library, source, "-ldl"], check=True)
    preloaded = " ".join(filter(None, [str(library), os.environ.get("LD_PRELOAD", "")]))
    return {"LD_PRELOAD": preloaded, "COPIED_BYTES": str(folder)}
