"""Copies blocks of attempts to other data servers, each within a time that depends on its size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyarrow import flight

from mrflight.config.identity import ANONYMOUS, ClientOptions, Identity
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
"""The timeout of a copy without bytes. A target that is suspended costs a drain little more than
this, and only once; a drain may take 30 s by default (`--drain-timeout`)."""

COPY_BYTES_PER_S = 10 * 10**6
"""The least speed of a copy: a fifth of that of one slow disk, which several copies may share."""


@dataclass(frozen=True)
class CopyRequest:
    """The blocks of one attempt in some partitions of a shuffle, to be copied to one target."""

    shuffle_id: str
    source: MapAttempt
    target: str
    partitions: Sequence[int]
    partition_count: int
    token: str = ""
    """The shuffle's token."""


class BlockCopier(Closeable):
    """Sends the blocks of one store. Not safe for several threads."""

    def __init__(
        self, store: BlockStore, identity: Identity = ANONYMOUS, copy_s: float = COPY_S
    ) -> None:
        self._store = store
        self._copy_s = copy_s
        self._connections = Connections(ClientOptions(transport="flight", identity=identity))

    def close(self) -> None:
        self._connections.close()

    def incarnation_of(self, target: str) -> str:
        """Return the incarnation of the server at this location; raises the errors of calls."""
        descriptor = flight.FlightDescriptor.for_command(b"incarnation")
        options = flight.FlightCallOptions(timeout=NO_RETRY.call_s)
        with self._forget_on_error(target), from_flight(target, "flight-info"):
            info = self._connections.to(target).get_flight_info(descriptor, options)
        return bytes(info.app_metadata).decode(errors="replace")

    def copy(self, request: CopyRequest) -> dict[int, MrflightError]:
        """Copy blocks, and return the partitions that cannot be read here, with the reasons.

        The target has stored all others then. Raises the target's error or DeadlineExceededError;
        the target may then have some of the blocks.
        """
        shuffle_id, source = request.shuffle_id, request.source
        placement: list[tuple[str, ...]] = [()] * request.partition_count
        for partition in request.partitions:
            placement[partition] = (request.target,)
        size = self._store.size_bytes(shuffle_id, request.partitions, source)
        unreadable: dict[int, MrflightError] = {}
        self._connections.timeouts = Timeouts(stream_s=self._copy_s + size / COPY_BYTES_PER_S)
        with self._forget_on_error(request.target):
            sender = BlockSender(shuffle_id, source, placement, self._connections, request.token)
            try:
                for partition in request.partitions:
                    blocks = self._store.read(shuffle_id, partition, [source])
                    if (error := _send(sender, partition, blocks)) is not None:
                        unreadable[partition] = error
                sender.finish()
            except BaseException:
                sender.stop()
                raise
        return unreadable

    @contextmanager
    def _forget_on_error(self, target: str) -> Iterator[None]:
        """Close the connection to a target if a call over it fails."""
        try:
            yield
        except MrflightError:
            self._connections.forget(target)
            raise


def _send(sender: BlockSender, partition: int, blocks: Iterable[Block]) -> MrflightError | None:
    """Send a partition's blocks; stop at one that cannot be read, and return the reason."""
    reading = iter(blocks)
    while True:
        try:
            block = next(reading, None)
            if block is None:
                return None
            check_hash(block)  # or this target, and any other, would refuse it
        except (CorruptBlockError, SpillError) as error:
            return error
        sender.send(partition, block)
