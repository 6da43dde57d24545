"""Where the tail of a live stream is: a small file beside the stream's table.

It is ``<table>/_mrflight/tails/<stream>.json``. Readers of Delta tables leave out folders that
begin with an underscore, and so does their vacuum. Whoever may write to the table's folder may have
written it, so it has names and no references. How a server is reached, and as whom, is what the
reader has said, or what `mrflight.security.known_tails` has of this user.
"""

from __future__ import annotations

import msgspec

from mrflight.config.tail_merge import TailMerge
from mrflight.storage.deletion import TableFiles
from mrflight.storage.location import Location

_FOLDER = "_mrflight/tails"
_SUFFIX = ".json"


class TailFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """The place of a tail. Other keys, such as the identity in files of before, are not read."""

    stream: str
    tail: str = ""
    """Its name on the data server."""
    location: str = ""
    """That of the data server of a standing cluster, which is asked only if the cluster has it."""
    cluster: str = ""
    """The location of the metadata server of a standing cluster; empty for the stream's own."""
    log: str = ""
    """The event log that is the tail: its name and token. Then no data server is named."""
    merge: TailMerge | None = None
    """Set if the rows of the tail are changes, which are merged into the table."""
    token: str = ""
    """That of readers, for a tail on a standing cluster: who reads the table may read its tail, and
    do nothing else with it."""


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
