"""A job's own temporary folder: sockets, the metadata server's journal, logs, the lifeline."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from mrflight.system.closeable import Closes
from mrflight.system.parent_watch import Lifeline
from mrflight.system.scratch import ScratchFolder, remove_dead_folders

_SOCKET_PATH = re.compile(r"[A-Za-z0-9/._~-]+")  # what a location takes as it is
_LONGEST_SOCKET = len("/mrflight-sockets-12345678/metadata.sock") + 7
_LONGEST_PATH = 107
"""Of a socket, in bytes: the kernel's limit."""


class PrivateFolder(Closes):
    """Of mode 0700; made at once, where what dead processes left is removed.

    It lies in the system's temporary folder, or in /tmp where that is no place for a unix socket,
    whose path is short and plain.
    """

    def __init__(self) -> None:
        root = short_root(_LONGEST_SOCKET)
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


def short_root(inside_bytes: int) -> Path:
    """The system's temporary folder, or /tmp where sockets below it had too long a path.

    ``inside_bytes`` is how long such a path is from there on.
    """
    root = tempfile.gettempdir()
    is_short = len(os.fsencode(root)) + inside_bytes <= _LONGEST_PATH
    return Path(root if is_short and _SOCKET_PATH.fullmatch(root) else "/tmp")
