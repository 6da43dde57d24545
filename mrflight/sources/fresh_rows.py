"""Reads a version of a Delta table, and what its live streams have beyond it.

A version has recorded up to where it has the events of each partition. The tail of the stream has
those from there on. Both are cut at that offset, so that a commit that happens meanwhile neither
doubles rows nor leaves any out. If the stream merges, the rows of the tail are changes: see
`mrflight.sources.fresh_changes`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa
from msgspec import structs

from mrflight.config.identity import ClusterAccess
from mrflight.config.tail_merge import TailMerge
from mrflight.errors import (
    CommitError,
    DeadlineExceededError,
    InputError,
    JobFileError,
    MrflightError,
    ServerUnavailableError,
    TailBehindError,
    TailError,
    TailNotFoundError,
    TailTrimmedError,
)
from mrflight.shuffle.log.durable_log import NO_MARK
from mrflight.shuffle.wire.tail_protocol import MAX_WAIT_S, TailRead
from mrflight.sources.fresh_changes import FreshLayers, tail_layer
from mrflight.sources.fresh_token import AtLeast, FreshToken, offsets_wanted, short_name
from mrflight.sources.recorded_names import MARK, with_current_names
from mrflight.sources.tail_place import LogTail, TailExtent, TailPlace, place_of
from mrflight.storage import Location
from mrflight.storage.delta import delta_errors, open_table
from mrflight.storage.delta_transactions import read_transactions
from mrflight.storage.tail_file import TailFile, read_tail_files

if TYPE_CHECKING:
    from deltalake import DeltaTable

DEFAULT_WAIT_S = 20.0
_PAUSE_S = 0.01
_MAX_PAUSE_S = 0.2
_PREFIX = "mrflight/"
_PARTS = 5
"""The parts of the id of a stream's transaction: the stream, and the name of a partition."""

_PASSING = (TailError, ServerUnavailableError, DeadlineExceededError, CommitError)
"""The errors after which the table is looked at again: another version may have the rows."""

Recorded = dict[str, dict[str, int]]
"""The next offsets of a table by stream and source partition."""


class FreshRead(msgspec.Struct, frozen=True):
    """What a fresh read is to have."""

    at_least: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Offsets that are to be reached, by ``topic/partition`` or by whole names."""
    as_of: FreshToken | None = None
    """Read what an earlier read has read."""
    wait_s: float = DEFAULT_WAIT_S
    pin_s: float = 0.0
    """For how long the tail keeps the rows."""
    cluster: ClusterAccess | None = None
    """How the reader reaches a standing cluster that has the tail; by default as nobody."""
    is_planned: bool = False
    """True if the rows are read later, and here only counted where that is less work."""

    @classmethod
    def of(
        cls,
        at_least: AtLeast | None,
        as_of: str | None,
        wait_s: float,
        cluster: ClusterAccess | None = None,
    ) -> FreshRead:
        """Return the read with these arguments; raise InputError for a text that is no token."""
        token = None if as_of is None else FreshToken.parse(as_of, "as_of")
        return cls(offsets_wanted(at_least), token, wait_s, cluster=cluster)


class FreshTail(NamedTuple):
    """The rows of one tail, and where they can be read again."""

    stream: str
    name: str
    """That of the tail on its data server."""
    place: TailPlace
    since: dict[str, int]
    extent: TailExtent
    batches: list[pa.RecordBatch]
    """None of them if they were only counted."""
    merge: TailMerge | None = None
    """Set if its rows are changes, and there are some."""


class FreshVersion(NamedTuple):
    """A version of a table, and what is beyond it."""

    version: int
    tails: list[FreshTail]
    """Those of the table, by the name of their stream."""
    token: FreshToken
    table: DeltaTable
    """The version, loaded."""

    @property
    def merge_keys(self) -> list[str]:
        """The columns by which rows of the table are told that the tails replace."""
        merges = [tail.merge for tail in self.tails if tail.merge is not None]
        return list(dict.fromkeys(name for merge in merges for name in merge.keys))

    def layers(self, schema: pa.Schema) -> FreshLayers:
        """Return what the tails add to rows of the table with these columns.

        The columns of `merge_keys` must be among them. Raises InputError for changes that cannot be
        merged.
        """
        return FreshLayers(
            [tail_layer(tail.stream, tail.batches, tail.merge, schema) for tail in self.tails]
        )


def read_fresh(root: Location, wanted: FreshRead) -> FreshVersion:
    """Return the newest version, or that of a token, with the rows of the tails beyond it.

    Without live streams it is the version alone. Waits for what is wanted, and for tails that are
    fetched again, at most ``wanted.wait_s``; then it raises TailBehindError, or the error of the
    tail. Raises InputError for a token whose rows are not kept any more.
    """
    deadline = time.monotonic() + wanted.wait_s
    pause_s = _PAUSE_S
    while True:
        try:
            return _read(root, wanted, deadline)
        except _PASSING as error:
            if wanted.as_of is not None and isinstance(error, TailTrimmedError):
                raise InputError(
                    f"as_of: {root.url}: what was read then is not kept any more: {error}"
                ) from error
            if time.monotonic() + pause_s > deadline:
                raise _gave_up(root, wanted, error) from error
        time.sleep(pause_s)
        pause_s = min(_MAX_PAUSE_S, 2 * pause_s)


def _read(root: Location, wanted: FreshRead, deadline: float) -> FreshVersion:
    files = read_tail_files(root)
    if files is None:
        raise TailBehindError("the place of a tail is just being written")
    with delta_errors(f"{root.url} cannot be read"):
        table = open_table(root, None if wanted.as_of is None else wanted.as_of.version)
        version = table.version()
        recorded, marks = _recorded(root, version)
    files.sort(key=lambda file: file.stream)
    tails = [
        _read_tail(
            file, recorded.get(file.stream, {}), marks.get(file.stream, {}), wanted, deadline
        )
        for file in files
    ]
    reached = {stream: dict(offsets) for stream, offsets in recorded.items()}
    for tail in tails:
        reached[tail.stream] = tail.since | tail.extent.watermark
    token = FreshToken(version, reached)
    _check_reached(token, wanted)
    if wanted.as_of is not None and any(
        reached.get(stream) != offsets for stream, offsets in wanted.as_of.streams.items()
    ):
        raise TailTrimmedError("the stream has ended, and with it its tail")
    return FreshVersion(version, tails, token, table)


def _read_tail(
    file: TailFile,
    since: dict[str, int],
    marks: dict[str, int],
    wanted: FreshRead,
    deadline: float,
) -> FreshTail:
    until = None if wanted.as_of is None else wanted.as_of.streams.get(file.stream, since)
    request = TailRead(
        file.tail,
        since,
        until,
        _by_names(wanted.at_least, since),
        max(0.0, min(deadline - time.monotonic(), MAX_WAIT_S)),
        wanted.pin_s,
    )
    try:
        place = place_of(file, wanted.cluster)
        if isinstance(place, LogTail):
            name = place.partition
            place = structs.replace(place, recorded=(since.get(name, 0), marks.get(name, NO_MARK)))
        if wanted.is_planned and isinstance(place, LogTail):
            extent = place.measure(request)
            return FreshTail(file.stream, file.tail, place, since, extent, [])
        found = place.read(request)
    except JobFileError as error:
        if file.cluster:
            raise
        # The token went with the stream that wrote it.
        raise TailNotFoundError(f"the stream {file.stream!r} does not run here: {error}") from error
    extent = TailExtent.of(found)
    merge = file.merge if found.batches else None
    return FreshTail(file.stream, file.tail, place, since, extent, found.batches, merge)


def _recorded(root: Location, version: int) -> tuple[Recorded, Recorded]:
    """Return what a version has recorded, for all streams: the offsets, and the marks of some."""
    found: Recorded = {}
    marks: Recorded = {}
    for app, offset in read_transactions(root, version, _PREFIX).items():
        stream, *name = app.removeprefix(_PREFIX).split("/")
        if len(name) == _PARTS - 1:
            found.setdefault(stream, {})["/".join(name)] = offset
        elif len(name) == _PARTS and name[0] == MARK.rstrip("/"):
            marks.setdefault(stream, {})["/".join(name[1:])] = offset
    return {stream: with_current_names(offsets) for stream, offsets in found.items()}, marks


def _by_names(wanted: Mapping[str, int], known: Mapping[str, int]) -> dict[str, int]:
    """Return the offsets by whole names, of the partitions that the table knows."""
    by_short = {short_name(name): name for name in known}
    names = {name: by_short.get(name, name) for name in wanted}
    return {names[name]: offset for name, offset in wanted.items() if names[name] in known}


def _check_reached(token: FreshToken, wanted: FreshRead) -> None:
    """Raise TailBehindError if what was read has not come as far as is wanted."""
    reached: dict[str, int] = {}
    for offsets in token.streams.values():
        for name, offset in offsets.items():
            for key in (name, short_name(name)):
                reached[key] = max(offset, reached.get(key, 0))
    for name, offset in wanted.at_least.items():
        if reached.get(name, 0) < offset:
            raise TailBehindError(
                f"{name}: offset {reached.get(name, 0)} is reached, and {offset} was asked for"
            )


def _gave_up(root: Location, wanted: FreshRead, error: MrflightError) -> MrflightError:
    """Return the error of a read that has waited for long enough, which says what to do."""
    kind = type(error) if isinstance(error, TailError) else TailError
    return kind(
        f"{root.url}: the rows that the table does not have yet cannot be read, after "
        f"{wanted.wait_s:g} s: {error}; if the stream has ended without a stop, start it again, or "
        "read the table without fresh"
    )
