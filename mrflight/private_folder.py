"""A job's own temporary folder: sockets, the metadata server's journal, logs, the lifeline."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from mrflight.closing import Closes
from mrflight.lifeline import Lifeline
from mrflight.scratch import ScratchFolder, remove_dead_folders

_SOCKET_PATH = re.compile(r"[A-Za-z0-9/._~-]+")  # what a location takes as it is
_LONGEST_ROOT = 100 - len("/mrflight-sockets-12345678/metadata.sock")
"""In bytes; the kernel's limit for a socket is 107."""


class PrivateFolder(Closes):
    """Of mode 0700; made at once, where what dead processes left is removed.

    It lies in the system's temporary folder, or in /tmp where that is no place for a unix socket,
    whose path is short and plain.
    """

    def __init__(self) -> None:
        root = _root()
        remove_dead_folders(root)
        self._folder = ScratchFolder("sockets", root)
        try:
            self.path = self._folder.path
            self.lifeline = Lifeline(self.path / "lifeline")
        except BaseException:  # an interrupt as well leaves nothing behind
            self._folder.close()
            raise

    def close(self) -> None:
        """Remove the folder; processes that still hold on to the lifeline end."""
        self._folder.close()
        self.lifeline.close()


def _root() -> Path:
    root = tempfile.gettempdir()
    is_fit = len(os.fsencode(root)) <= _LONGEST_ROOT and _SOCKET_PATH.fullmatch(root)
    return Path(root if is_fit else "/tmp")
