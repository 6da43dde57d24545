"""Keeps the tail of a live stream: starts what feeds it, and lets it go what the table has."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import structs

from mrflight.config.identity import ClusterAccess, Endpoint
from mrflight.errors import AccessDeniedError, MrflightError
from mrflight.planner.row_maps import input_maps
from mrflight.scheduler.job_run import JobRun
from mrflight.shuffle.client.tail_client import TailClient
from mrflight.sinks.delta.recorded_offsets import RecordedOffsets
from mrflight.sinks.delta.table import DeltaTable
from mrflight.sources.recorded_names import without_marks
from mrflight.storage import Location
from mrflight.storage.tail_file import TailFile, remove_tail_file, write_tail_file
from mrflight.streams.live import Live
from mrflight.streams.positions import Position, Positions
from mrflight.streams.stream_settings import StreamSettings
from mrflight.streams.tail_servers import tail_servers
from mrflight.tasks.log_feed import run_log_feed
from mrflight.tasks.mapper import chained
from mrflight.tasks.tail_changes import TailChanges
from mrflight.tasks.tail_feed import TailFeed, run_feed

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.1
"""How often it is looked whether the feed still runs."""
_TRIM_EVERY_S = 1.0
_MAX_PAUSE_S = 2.0
_END_TIMEOUT_S = 10.0


class LiveTail(Live):
    """Keeps the tail of a stream, in a thread. A context manager.

    A feed that has ended is started again, on another data server if that of the tail is gone, and
    under another name if somebody else has a tail of that name there. The tail then begins at the
    offsets that the table has.
    """

    def __init__(
        self,
        job: JobRun,
        settings: StreamSettings,
        positions: Positions,
        table: Location,
        schema: Callable[[], pa.Schema | None],
    ) -> None:
        """Wait until the data servers are ready."""
        self._servers = tail_servers(settings.name, job)
        self._job = job
        self._settings = settings
        self._positions = positions
        self._schema = schema
        self._recorded = _RecordedByTable(table, settings.name)
        self._table = table
        spec, name = job.spec, settings.input
        self._map = chained(input_maps(spec, name, str(job.folder)))
        self._changes = TailChanges.of(spec.output)
        self._name, self._token = self._servers.name, self._servers.token
        self._position: Position | None = None
        """Where the stream began, or has come to, in each partition."""
        self._feed: Future[None] | None = None
        self._followed: frozenset[tuple[str, int]] = frozenset()
        self._epoch = 0
        self._server: Endpoint | None = None
        self._written: TailFile | None = None
        self._changed = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="live-tail", daemon=True)

    def follow(self, position: Position) -> None:
        """Feed the tail from here on, if it is not fed yet; follow new partitions."""
        if self._position is None:
            self._position = dict(position)
            self._thread.start()
        elif new := {each: start for each, start in position.items() if each not in self._position}:
            self._position = {**self._position, **new}

    def cut(self, position: Position, ends: Position) -> Position:
        """Return the ends for a batch: those of mapped rows are where the tail can be cut.

        Otherwise the tail would read what follows again. It is left out of account where it has
        nothing of the batch, or does not answer.
        """
        server = self._server
        if server is None or self._map is None:
            return ends
        try:
            with TailClient(server, self._token) as client:
                found = client.trim(self._name, {})
        except MrflightError as error:
            log.info("the tail of stream %r does not answer: %s", self._settings.name, error)
            return ends
        nexts = {each: found.get(self._positions.name(each), -1) for each in ends}
        return {
            each: nexts[each] if position[each] < nexts[each] < end else end
            for each, end in ends.items()
        }

    def committed(self) -> None:
        """Learn that the table has a new version."""
        self._changed.set()

    def close(self) -> None:
        """End the feed, and remove the tail and its file."""
        self._ending.set()
        self._changed.set()
        if self._position is not None:
            self._thread.join(_END_TIMEOUT_S)
        self._stop_feed()
        with suppress(OSError):
            if self._written is not None:
                remove_tail_file(self._table, self._settings.name)
        self._drop()
        self._servers.close()

    def _keep(self) -> None:
        pause_s, trimmed_at, is_refused = 0.0, 0.0, False
        while not self._ending.is_set():
            try:
                if is_refused:
                    self._take_new_name()
                self._keep_feed()
                is_due = self._changed.is_set() or time.monotonic() - trimmed_at >= _TRIM_EVERY_S
                if is_due:
                    self._changed.clear()
                    self._trim()
                    trimmed_at = time.monotonic()
                pause_s, is_refused = 0.0, False
            except Exception as error:  # the stream goes on, and its tail once this is over
                pause_s = min(_MAX_PAUSE_S, max(0.1, 2 * pause_s))
                is_refused = isinstance(error, AccessDeniedError)
                log.warning("the tail of stream %r: %s", self._settings.name, error)
                self._ending.wait(pause_s)
            self._changed.wait(_LOOK_EVERY_S)

    def _keep_feed(self) -> None:
        """Start a feed if none runs, or none for all partitions; raise what ended the last one."""
        position = self._position
        assert position is not None
        if self._feed is not None and self._feed.done():
            feed, self._feed = self._feed, None
            with suppress(CancelledError):
                feed.result()
        if self._feed is not None and self._followed == frozenset(position):
            return
        self._stop_feed()
        recorded = self._recorded.read()
        names = {each: self._positions.name(each) for each in position}
        starts = {each: recorded.get(names[each], start) for each, start in position.items()}
        self._server = self._servers.choose(self._server)
        self._epoch += 1
        spec, name = self._job.spec, self._settings.input
        bad_rows = "fail" if self._settings.on_bad_row == "stop" else "skip"
        feed_task = TailFeed(
            name,
            structs.replace(spec.inputs[name], bad_rows=bad_rows),
            self._job.folder,
            self._schema(),
            self._map,
            starts,
            frozenset(recorded),
            names,
            self._server,
            self._name,
            self._token,
            self._epoch,
            ClusterAccess(self._job.metadata, self._job.client) if spec.inputs[name].log else None,
            self._changes,
        )
        self._followed = frozenset(position)
        run = run_feed if feed_task.log is None else run_log_feed
        self._feed = self._job.submit_long(run, feed_task)

    def _take_new_name(self) -> None:
        """Begin another tail; the one before is dropped if it was the stream's after all."""
        self._stop_feed()
        self._drop()
        self._name = self._servers.take_new_name()

    def _drop(self) -> None:
        if self._server is not None:
            with suppress(MrflightError), TailClient(self._server, self._token) as client:
                client.drop(self._name)

    def _stop_feed(self) -> None:
        if self._feed is not None:
            self._job.stop_long(self._feed)
            self._feed = None

    def _trim(self) -> None:
        """Say on the tail's server what the table has, and say beside the table where that is."""
        recorded = self._recorded.read()
        if self._server is None or not recorded:  # no table, beside which a file could be
            return
        with TailClient(self._server, self._token) as client:
            client.trim(self._name, recorded)
        merge = None if self._changes is None else self._changes.merge
        file = structs.replace(self._servers.file(self._settings.name, self._server), merge=merge)
        if file != self._written:
            write_tail_file(self._table, file)
            self._written = file


class _RecordedByTable:
    """The offsets of a stream, as they are read from the log of its table."""

    def __init__(self, location: Location, stream: str) -> None:
        self._location = location
        self._stream = stream
        self._table: DeltaTable | None = None
        self._offsets = RecordedOffsets(stream)

    def read(self) -> dict[str, int]:
        """Return the offsets in the newest version; none if there is no table."""
        try:
            if self._table is None:
                self._table = DeltaTable.load(self._location)
                self._offsets = RecordedOffsets(self._stream)
            else:
                self._table.handle.update_incremental()
            return {} if self._table is None else without_marks(self._offsets.at(self._table))
        except BaseException:
            self._table = None
            raise
