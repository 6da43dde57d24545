"""Reads files in folders of this user that nobody else can use, and refuses other folders."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_MAX_BYTES = 64 * 2**10
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


def read_private(folder: Path, name: str) -> bytes:
    """Return the content of a small file in a folder of mode 0700 of this user.

    Raises PermissionError for a folder that is a link, is another user's or is open to others, and
    OSError if it, or the file, cannot be read. A link in the folder is not followed.
    """
    opened = os.open(folder, _FLAGS | os.O_DIRECTORY)
    try:
        found = os.fstat(opened)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise PermissionError(f"{folder} is not a folder that only this user can use")
        with open(os.open(name, _FLAGS, dir_fd=opened), "rb") as file:
            return file.read(_MAX_BYTES)
    finally:
        os.close(opened)
