"""A disk that fills, fails or lies under a process that runs.

What is done is done by the system to real writes and real files, so the process
sees what it would see of a broken disk.
"""

from __future__ import annotations

import os
import resource
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def full_disk(pid: int, file_bytes: int = 0) -> Iterator[None]:
    """Let no file that process ``pid`` writes grow beyond ``file_bytes``: it gets EFBIG.

    A stand-in for ENOSPC that takes no disk and no root: RLIMIT_FSIZE, whose signal Python
    ignores. It holds for all its files, logs as well, but for no pipe and no socket; what
    is written already stays, and can be written over. Children that it forks meanwhile
    keep the limit. ProcessLookupError where there is no such process; one that ends
    meanwhile is fine.
    """
    before, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (file_bytes, hard))
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (before, hard))


@contextmanager
def write_protected(folder: Path) -> Iterator[None]:
    """Let nobody make, rename or remove a file in ``folder``; no obstacle to root.

    Files that are there can be written to.
    """
    before = stat.S_IMODE(folder.stat().st_mode)
    folder.chmod(before & ~0o222)
    try:
        yield
    finally:
        folder.chmod(before)


def remove_folder(folder: Path) -> None:
    """Take a folder away with all that is in it: who opens a file there gets ENOENT.

    Files that are open can be read and written on.
    """
    shutil.rmtree(folder)


def spill_files(root: Path) -> list[Path]:
    """The files that data servers with ``--spill-dir root``, or of jobs there, have spilled to.

    Sorted by name, without those that are empty.
    """
    found = [
        path
        for folder in (root, *root.glob("mrflight-job-*"))
        for path in folder.glob("mrflight-spill-*/**/*.blocks")
    ]
    return sorted(path for path in found if _size(path))


def truncate_file(path: Path, keep_bytes: int) -> None:
    """Cut a file off after ``keep_bytes``; ValueError where it is no longer than that."""
    size = path.stat().st_size
    if size <= keep_bytes:
        raise ValueError(f"{path} has {size} bytes; there is nothing to cut off after {keep_bytes}")
    os.truncate(path, keep_bytes)


def flip_byte(path: Path, offset: int) -> None:
    """Turn every bit of one byte of a file over; ValueError where it has no such byte."""
    with path.open("r+b", buffering=0) as file:
        file.seek(offset)
        byte = file.read(1)
        if not byte:
            raise ValueError(f"{path} has no byte {offset}; it ends before")
        file.seek(offset)
        file.write(bytes([byte[0] ^ 0xFF]))


def _size(path: Path) -> int:
    """The bytes of a file, 0 where its server has removed it meanwhile."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
