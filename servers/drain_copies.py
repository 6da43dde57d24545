"""Copies of attempts' blocks on other servers, each within a time that its size decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyarrow import flight

from mrflight.errors import CorruptBlockError, MrflightError, SpillError
from mrflight.ids import MapAttempt
from mrflight.shuffle.client.block_sender import BlockSender
from mrflight.shuffle.store.block_store import BlockStore
from mrflight.shuffle.wire.block import Block, check_hash
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.flight_errors import from_flight
from mrflight.system.closeable import Closeable
from mrflight.system.deadlines import NO_RETRY, Timeouts

COPY_S = 10.0
"""That a copy of no bytes may take. More than this a target that stands still costs a drain only
once; its default is to take 30 s (`--drain-timeout`)."""

COPY_BYTES_PER_S = 10 * 10**6
"""That a copy goes on with at least: a fifth of what one slow disk takes, which several share."""


@dataclass(frozen=True)
class Copies:
    """What an attempt put into ``partitions`` of a shuffle of so many, for one target."""

    shuffle_id: str
    source: MapAttempt
    target: str
    partitions: Sequence[int]
    partition_count: int
    token: str = ""
    """Of the shuffle."""


class Copier(Closeable):
    """Sends what one store holds. Not for several threads."""

    def __init__(self, store: BlockStore, copy_s: float = COPY_S) -> None:
        self._store = store
        self._copy_s = copy_s
        self._connections = Connections()

    def close(self) -> None:
        self._connections.close()

    def incarnation_of(self, target: str) -> str:
        """What no other process at this location has, or will have; raises what calls raise."""
        descriptor = flight.FlightDescriptor.for_command(b"incarnation")
        options = flight.FlightCallOptions(timeout=NO_RETRY.call_s)
        with self._forgetting(target), from_flight(target, "flight-info"):
            info = self._connections.to(target).get_flight_info(descriptor, options)
        return bytes(info.app_metadata).decode(errors="replace")

    def copy(self, copies: Copies) -> dict[int, MrflightError]:
        """Return once the target has stored all; the partitions that cannot be read here, and why.

        Raises what the target answers, and DeadlineExceededError; then it may have a part.
        """
        shuffle_id, source = copies.shuffle_id, copies.source
        placement: list[tuple[str, ...]] = [()] * copies.partition_count
        for partition in copies.partitions:
            placement[partition] = (copies.target,)
        size = self._store.size_bytes(shuffle_id, copies.partitions, source)
        unreadable: dict[int, MrflightError] = {}
        self._connections.timeouts = Timeouts(stream_s=self._copy_s + size / COPY_BYTES_PER_S)
        with self._forgetting(copies.target):
            sender = BlockSender(shuffle_id, source, placement, self._connections, copies.token)
            try:
                for partition in copies.partitions:
                    blocks = self._store.read(shuffle_id, partition, [source])
                    if (error := _send(sender, partition, blocks)) is not None:
                        unreadable[partition] = error
                sender.finish()
            except BaseException:
                sender.stop()
                raise
        return unreadable

    @contextmanager
    def _forgetting(self, target: str) -> Iterator[None]:
        """A connection over which something failed is not used again."""
        try:
            yield
        except MrflightError:
            self._connections.forget(target)
            raise


def _send(sender: BlockSender, partition: int, blocks: Iterable[Block]) -> MrflightError | None:
    """Send a partition's blocks, until one cannot be read: why that is."""
    reading = iter(blocks)
    while True:
        try:
            block = next(reading, None)
            if block is None:
                return None
            check_hash(block)  # or the target refuses it, and every other one would
        except (CorruptBlockError, SpillError) as error:
            return error
        sender.send(partition, block)
