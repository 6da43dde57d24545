"""Proves from a table that it has every event of its stream once."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from mrflight.errors import InputError
from mrflight.sources.kafka.topic_offsets import Partition
from mrflight.streams.delta_stream_table import DeltaStreamTable
from mrflight.streams.missing_offsets import MissingOffsets
from mrflight.streams.offset_continuity import Chain, check_chains
from mrflight.streams.offset_presence import (
    FirstOffsets,
    OffsetPresence,
    OffsetsOutside,
    Ranges,
    Strays,
    windows,
)
from mrflight.streams.recorded_stream import (
    RecordedStream,
    parse_name,
)
from mrflight.streams.stream_job import StreamJob
from mrflight.streams.stream_table import StreamTable
from mrflight.streams.table_offsets import PLACE, TableOffsets
from mrflight.streams.verification import CheckedPartition, CheckedRows, Verification

WINDOW = 128 << 20
"""The offsets that are looked at in one read of the table; each takes a byte of memory."""


def verify(job: StreamJob, window: int = WINDOW) -> Verification:
    """Check the log and the rows of the table of a stream.

    Reads the table once for each ``window`` offsets. Raises InputError if there is nothing to
    check, and CommitError if the log cannot be read.
    """
    table = job.open_table()
    recorded = None if table is None else table.recorded(job.settings.name)
    if table is None or recorded is None or not recorded.partitions:
        raise InputError(
            f"{job.url} has recorded no offsets of stream {job.settings.name!r}, so that there is "
            "nothing to verify; run the stream first, and check stream.name"
        )
    chains, notes = _chains(table, recorded, job.settings.name)
    partitions = tuple(_checked(name, chain) for name, chain in chains.items())
    rows, more = _check_rows(job, table, chains, recorded, window)
    is_proved = not any(each.breaks for each in partitions) and (rows is None or rows.is_right)
    return Verification(
        job.settings.name,
        table.url,
        table.version,
        is_proved,
        partitions,
        rows,
        (*notes, *more),
    )


def _chains(
    table: StreamTable, recorded: RecordedStream, stream: str
) -> tuple[dict[str, Chain], list[str]]:
    """Return the commits of each partition, and what they cannot prove."""
    found = list(table.commits(stream))
    notes = []
    if found and found[-1] is None:
        notes.append(
            "the commits before those that are listed, as their log entries were cleaned away, or "
            "their snapshots expired"
        )
    commits = [each for each in reversed(found) if each is not None]
    chains = check_chains(commits, recorded.by_name)
    unseen = [each for each in recorded.partitions if each.name not in chains]
    if unseen:
        places = ", ".join(f"{each.topic}/{each.partition}" for each in unseen)
        notes.append(f"the commits of {places}, none of which is in the history any more")
    return chains, notes


def _checked(name: str, chain: Chain) -> CheckedPartition:
    place = parse_name(name, chain.last)
    return CheckedPartition(
        place.topic,
        place.partition,
        chain.first,
        chain.last,
        chain.commits,
        chain.is_whole,
        chain.breaks,
    )


def _check_rows(
    job: StreamJob,
    table: StreamTable,
    chains: Mapping[str, Chain],
    recorded: RecordedStream,
    window: int,
) -> tuple[CheckedRows | None, list[str]]:
    """Return what the rows of the table prove, and what they cannot."""
    if job.spec.output.mode == "merge":
        return None, ["the rows: a merge replaces those of earlier events"]
    if lacking := [name for name in PLACE if name not in table.schema.names]:
        return None, [
            f"the rows: they do not say which events they are, as the table has no "
            f"{lacking[0]}; set metadata = true in a new stream"
        ]
    if job.input.format == "arrow":
        return None, ["the rows: an Arrow message has several, or none"]
    offsets = TableOffsets(table, job.folder, job.spec.storage)
    bounds = _bounds(chains, recorded, offsets)
    check = _RowCheck(job, bounds, chains)
    rows = check.run(offsets, window)
    if job.shapes_rows:
        return rows, [
            "that no row is missing: the job's map, sql, filter, reduce or envelope may leave rows "
            "out"
        ]
    return rows, []


def _bounds(
    chains: Mapping[str, Chain], recorded: RecordedStream, offsets: TableOffsets
) -> dict[Partition, tuple[int, int]]:
    """Return the offsets of each partition that the table should have."""
    starts = {}
    for each in recorded.partitions:
        chain = chains.get(each.name)
        if chain is not None and chain.is_whole and chain.first is not None:
            starts[each.topic, each.partition] = chain.first
    if len(starts) < len(recorded.partitions):
        first = FirstOffsets()
        for batch in offsets.read():
            first.add(batch)
        starts = {**first.found, **starts}
    return {
        (each.topic, each.partition): (
            starts.get((each.topic, each.partition), each.next),
            each.next,
        )
        for each in recorded.partitions
    }


class _RowCheck:
    """Looks for rows that are doubled, missing, or not recorded."""

    def __init__(
        self,
        job: StreamJob,
        bounds: dict[Partition, tuple[int, int]],
        chains: Mapping[str, Chain],
    ) -> None:
        self._job = job
        self._bounds = bounds
        self._deleted: Ranges = {}
        for name, chain in chains.items():
            place = parse_name(name, 0)
            self._deleted.setdefault((place.topic, place.partition), []).extend(chain.skipped)
        self._missing = MissingOffsets(job)

    def run(self, offsets: TableOffsets, window: int) -> CheckedRows:
        """Read the table once for each window of offsets."""
        outside = OffsetsOutside(self._bounds)
        total = CheckedRows(0, Strays(0, ()), Strays(0, ()))
        for number, bounds in enumerate(windows(self._bounds, window)):
            presence, rows = OffsetPresence(bounds), 0
            for batch in offsets.read():
                presence.add(batch)
                rows += batch.num_rows
                if number == 0:
                    outside.add(batch)
            total = replace(total, rows=rows, doubled=_sum(total.doubled, presence.twice))
            if not self._job.shapes_rows:
                total = self._explain(presence, total)
        return replace(total, outside=outside.strays, is_complete=not self._job.shapes_rows)

    def _explain(self, presence: OffsetPresence, total: CheckedRows) -> CheckedRows:
        """Add why offsets of a window have no row."""
        dead = self._explain_dead_letters(presence)
        missing, deleted = _without(presence.missing(), self._deleted)
        found = self._missing.explain(missing)
        return replace(
            total,
            dead_letters=total.dead_letters + dead,
            no_message=total.no_message + found.no_message,
            skipped=total.skipped + found.skipped,
            deleted=total.deleted + deleted,
            lost=(*total.lost, *found.lost),
        )

    def _explain_dead_letters(self, presence: OffsetPresence) -> int:
        location = self._job.dead_letters
        table = None if location is None else DeltaStreamTable.open(location)
        if table is None:
            return 0
        rejected = TableOffsets(
            table, self._job.folder, self._job.spec.storage, is_dead_letters=True
        )
        return sum(presence.explain(batch) for batch in rejected.read())


def _sum(one: Strays, other: Strays) -> Strays:
    return Strays(one.count + other.count, (one.examples + other.examples)[:5])


def _without(missing: Ranges, deleted: Ranges) -> tuple[Ranges, int]:
    """Return the missing offsets that were not deleted, and how many were."""
    count, kept = 0, Ranges()
    for place, spans in missing.items():
        for low, high in deleted.get(place, ()):
            left = []
            for start, stop in spans:
                inside = max(0, min(stop, high) - max(start, low))
                count += inside
                if not inside:
                    left.append((start, stop))
                    continue
                left += [(start, low)] if start < low else []
                left += [(high, stop)] if stop > high else []
            spans = left
        kept[place] = spans
    return kept, count
