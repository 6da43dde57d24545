"""Where a stream is in an event log of the cluster, which it trims once rows are in the table."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence

from mrflight.config.input_spec import InputSpec
from mrflight.errors import InputError, LostOffsetsError
from mrflight.shuffle.client.log_client import LogClient
from mrflight.shuffle.log.durable_log import NO_MARK
from mrflight.shuffle.store.tail_store import GRACE_S
from mrflight.shuffle.wire.log_protocol import LogState
from mrflight.shuffle.wire.log_rights import LogRight
from mrflight.sources.kafka.offset_range import OffsetRange
from mrflight.sources.kafka.topic_offsets import Partition
from mrflight.sources.log_source import LogInput
from mrflight.sources.recorded_names import MARK, partition_of_log, with_current_names
from mrflight.streams.positions import Position, Positions

TRIM_EVERY_S = 10.0
"""How often the segments are removed whose rows are in the table."""


class LogPositions(Positions):
    """The one partition of an event log."""

    def __init__(
        self, name: str, spec: InputSpec, place: LogInput, *, is_live: bool = False
    ) -> None:
        """``is_live``: the rows of an earlier version of the table can be read for a while."""
        self._key = f"inputs.{name}"
        self._spec = spec
        self._place = place
        with self._client() as client:
            placement = client.describe(place.key(name, spec))
        self._log, self._named = placement.key, placement.log
        self._may_trim = LogRight.DROP in placement.rights
        self._partition: Partition = (self._log.id, 0)
        self._keep_s = GRACE_S if is_live else 0.0
        self._recorded: deque[tuple[float, int]] = deque()
        """When the table had recorded which offset, as far as the log is not trimmed."""
        self._trimmed_at = time.monotonic()
        self._known = (0, NO_MARK)
        """The last offset up to which rows were read, and its mark."""

    @property
    def partitions(self) -> list[Partition]:
        return [self._partition]

    def name(self, partition: Partition) -> str:
        return partition_of_log(self._named)

    def refresh(self) -> None:
        return

    def ends(self) -> Position:
        state, (wanted, _) = self._state(), self._known
        if state.high < wanted:
            raise self._went_back(wanted, state)
        return {self._partition: state.high}

    def position(self, recorded: Mapping[str, int]) -> Position:
        name, recorded = self.name(self._partition), with_current_names(recorded)
        if name in recorded:
            at, mark = recorded[name], recorded.get(MARK + name)
            if mark is not None or at != self._known[0]:
                self._known = (at, mark or NO_MARK)
            return {self._partition: at}
        for other in recorded:
            if other.startswith(f"log/{self._log.id}/"):
                raise InputError(
                    f"{self._key}.log: {self._log.id} was dropped and made anew since the table "
                    "recorded its offsets, so that they mean other rows now; begin anew under "
                    "another stream.name, or write to another table"
                )
        state = self._state()
        return {self._partition: state.high if self._spec.start == "latest" else state.low}

    def check_kept(self, position: Position, *, takes_earliest: bool) -> Position:
        wanted = position[self._partition]
        state = self._state(wanted)
        if self._is_behind(wanted, state):
            raise self._went_back(wanted, state)
        if wanted >= state.low:
            return position
        if takes_earliest:
            return {self._partition: state.low}
        raise LostOffsetsError(
            f"{self._key}: the rows {wanted} to {state.low - 1} of event log {self._log.id} were "
            'trimmed and never read; set stream.on_lost_offsets = "earliest" to go on without them',
            self._log.id,
            0,
            wanted,
            state.low,
        )

    def marks(self, ranges: Sequence[OffsetRange]) -> dict[str, int]:
        (read,) = ranges
        state = self._state(read.start, read.stop)
        if state.high < read.stop or self._is_behind(read.start, state):
            raise self._went_back(read.start, state)
        self._known = (read.stop, state.marks[1])
        return {MARK + self.name(self._partition): state.marks[1]}

    def _is_behind(self, wanted: int, state: LogState) -> bool:
        """Return whether the rows before an offset are gone, or others than those that were read.

        ``state`` was asked for its mark first.
        """
        offset, mark = self._known
        is_other = offset == wanted and NO_MARK not in (mark, state.marks[0])
        return wanted > state.high or (is_other and mark != state.marks[0])

    def _went_back(self, wanted: int, state: LogState) -> LostOffsetsError:
        return LostOffsetsError(
            f"{self._key}: event log {self._log.id} has lost rows that were read before offset "
            f"{wanted} and has given their offsets to others, or will do so; it ends at "
            f"{state.high} now: restore the newest copy of its --log-dir, or begin anew under "
            "another stream.name",
            self._log.id,
            0,
            wanted,
            state.low,
        )

    def committed(self, recorded: Mapping[str, int]) -> None:
        """Trim the log below what the table has, now and then."""
        now = time.monotonic()
        if (offset := recorded.get(self.name(self._partition))) is not None:
            self._recorded.append((now, offset))
        if now - self._trimmed_at < TRIM_EVERY_S or not self._may_trim:
            return
        self._trimmed_at, offset = now, None
        while self._recorded and self._recorded[0][0] <= now - self._keep_s:
            _, offset = self._recorded.popleft()
        if offset is not None:
            with self._client() as client:
                client.trim(self._log, offset)

    def _state(self, *offsets: int) -> LogState:
        with self._client() as client:
            return client.state(self._log, offsets=offsets)

    def _client(self) -> LogClient:
        return LogClient(self._place.location, self._place.client)
