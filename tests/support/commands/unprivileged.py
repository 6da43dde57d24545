"""Folders that a user cannot write to, and commands that run as such a user even under root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def unprivileged(command: list[str]) -> list[str]:
    """``command``, to which a folder's permissions apply.

    Root keeps its name, so that it finds its own files, and goes without the right to pass over
    permissions.
    """
    if os.geteuid() != 0:
        return command
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Keep `unprivileged` commands from creating files in the folder."""
    folder.chmod(0o555)
    try:
        yield
    finally:
        folder.chmod(0o755)


@contextmanager
def immutable(folder: Path) -> Iterator[None]:
    """Not even root can make a file in the folder; who calls it has to be root."""
    subprocess.run(["chattr", "+i", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", str(folder)], check=True)
