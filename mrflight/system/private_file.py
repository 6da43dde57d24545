"""New files that only their owner may read, also while they are being written."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

PRIVATE, PUBLIC = 0o600, 0o644


def write_new_files(contents: dict[Path, tuple[bytes, int]]) -> None:
    """Write files that do not exist yet, each with its mode; all of them or none.

    A file has its mode from the moment it exists. Raises FileExistsError if there is one of them
    already, and OSError if one cannot be written.
    """
    written: list[Path] = []
    try:
        for path, (content, mode) in contents.items():
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            number = os.open(path, flags, mode)
            written.append(path)
            with open(number, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(number)
    except BaseException:
        for path in written:
            with suppress(OSError):
                path.unlink()
        raise
