"""The tails of a user's own streams on a machine: where each is, and the tokens to read it.

The file beside a table has the name of a tail and nothing more, as whoever writes to the table's
folder may have written it. A stream keeps the rest in a scratch folder, of mode 0700, which has the
end of that name. So a reader of the same user finds it by the name, and nobody else reads it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from mrflight.config.identity import Endpoint, Identity
from mrflight.config.locations import is_on_this_machine
from mrflight.config.secret_reference import FILE
from mrflight.errors import TailNotFoundError
from mrflight.security.credentials import load
from mrflight.security.job_tokens import write_private
from mrflight.system.closeable import Closeable
from mrflight.system.private_folder import read_private
from mrflight.system.scratch import (
    ScratchFolder,
    remove_dead_folders,
    remove_if_dead,
    temporary_folder,
)

_KIND = "tails"
_NAME = re.compile(r".+\.([0-9a-f]{8})")
_LOCATION, _TOKEN, _READER = "location", "token", "reader"


class FoundTail(NamedTuple):
    """Where a tail is read."""

    server: Endpoint
    token: str
    """The token with which the tail is read."""


class KnownTail(Closeable):
    """Lets readers of this user find the tail of a stream, until it is closed."""

    def __init__(self, stream: str) -> None:
        """Raise OSError if there is no room for a folder."""
        usable = (each for each in _roots() if os.access(each, os.W_OK | os.X_OK))
        root = next(usable, temporary_folder())
        remove_dead_folders(root)
        self._folder = ScratchFolder(_KIND, root)
        self._written: Endpoint | None = None
        self.name = f"{stream}.{self._folder.path.name.rpartition('-')[2]}"
        """The name of the tail."""

    def tell(self, server: Endpoint, reader: str) -> None:
        """Say which server of the stream has the tail, and the token of its readers."""
        if server == self._written:
            return
        write_private(self._folder.path / _TOKEN, load(server.identity).token)
        write_private(self._folder.path / _READER, reader)
        write_private(self._folder.path / _LOCATION, server.location)
        self._written = server

    def close(self) -> None:
        self._folder.close()


def find_tail(tail: str) -> FoundTail:
    """Return where a tail of this user on this machine is read; raise TailNotFoundError."""
    match = _NAME.fullmatch(tail)
    ends = [match[1]] if match else []
    why = "no stream of this user on this machine has it"
    for folder in (root / f"mrflight-{_KIND}-{end}" for end in ends for root in _roots()):
        if remove_if_dead(folder):
            continue
        try:
            location = read_private(folder, _LOCATION).decode()
            reader = read_private(folder, _READER).decode()
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            why = str(error)
            continue
        if is_on_this_machine(location):
            identity = Identity(token=f"{FILE}{folder / _TOKEN}")
            return FoundTail(Endpoint(location, identity), reader)
        why = f"{folder} names a server that is not on this machine"
    raise TailNotFoundError(f"the tail {tail!r} cannot be found: {why}")


def _roots() -> list[Path]:
    """Return where the folders may be: in /tmp, whatever TMPDIR a reader has, or else in TMPDIR."""
    return [Path("/tmp"), temporary_folder()]
