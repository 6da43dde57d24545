"""Where the tail of a live stream is: a small file beside the stream's table.

It is ``<table>/_mrflight/tails/<stream>.json``. Readers of Delta tables leave out folders that
begin with an underscore, and so does their vacuum.
"""

from __future__ import annotations

import msgspec

from mrflight.config.identity import ANONYMOUS, Endpoint, Identity
from mrflight.config.tail_merge import TailMerge
from mrflight.storage.deletion import TableFiles
from mrflight.storage.location import Location

_FOLDER = "_mrflight/tails"
_SUFFIX = ".json"


class TailFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """The place of a tail."""

    stream: str
    tail: str = ""
    """Its name on the data server."""
    location: str = ""
    """That of the data server."""
    identity: Identity = ANONYMOUS
    """Who readers are to it: references only, which a user of the stream's machine can read. Those
    of a standing cluster say themselves who they are."""
    cluster: str = ""
    """The location of the metadata server of a standing cluster; empty for the stream's own."""
    log: str = ""
    """The event log that is the tail: its name and token. Then no data server is named."""
    merge: TailMerge | None = None
    """Set if the rows of the tail are changes, which are merged into the table."""

    @property
    def server(self) -> Endpoint:
        return Endpoint(self.location, self.identity)


def write_tail_file(table: Location, file: TailFile) -> None:
    """Write the place of a tail, over that of an earlier one; raises OSError."""
    with _of(table, file.stream).create() as out:
        out.write(msgspec.json.encode(file))


def remove_tail_file(table: Location, stream: str) -> None:
    """Remove the place of a tail; raises OSError, but not if there is none."""
    TableFiles(table).delete(_of(table, stream))


def read_tail_files(table: Location) -> list[TailFile] | None:
    """Return the places of the tails of a table; None if one of them is just being written.

    Raises OSError if the store does.
    """
    found = []
    for info in table.child(_FOLDER).children():
        if not info.is_file or not info.base_name.endswith(_SUFFIX):
            continue
        try:
            data = table.child(f"{_FOLDER}/{info.base_name}").read_bytes()
            found.append(msgspec.json.decode(data, type=TailFile))
        except FileNotFoundError:  # the stream has ended
            continue
        except msgspec.MsgspecError:
            return None
    return found


def _of(table: Location, stream: str) -> Location:
    return table.child(f"{_FOLDER}/{stream}{_SUFFIX}")
