"""Takes the frames of event logs that other data servers own."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa
from pyarrow import flight

from mrflight.errors import LogOwnerChangedError, ProtocolError
from mrflight.ids import ShuffleKey
from mrflight.shuffle.log.durable_log import DurableLog
from mrflight.shuffle.log.frame import decode_frames
from mrflight.shuffle.log.log_folder import LogFolder
from mrflight.shuffle.wire.log_protocol import (
    REPLICA_SCHEMA,
    AppendReceipt,
    LogPlacement,
    LogPut,
    ReplicaMode,
)
from mrflight.shuffle.wire.log_rights import check_rights

Describe = Callable[[str], LogPlacement]


@dataclass
class _Held:
    """A log that this server owns or holds a replica of."""

    epoch: int = 0
    """The highest epoch in which the log was heard of. Frames of an earlier one are refused."""
    lock: threading.Lock = field(default_factory=threading.Lock)


class LogReplicas:
    """The replicas that a data server holds, and the epoch of each. Safe for many threads.

    A server that starts knows no epoch, and asks the metadata server. ``resign`` is called before
    a log is replaced by a copy: this server may have owned it before.
    """

    def __init__(
        self, folder: LogFolder, describe: Describe, resign: Callable[[ShuffleKey], None]
    ) -> None:
        self._folder = folder
        self._describe = describe
        self._resign = resign
        self._held: defaultdict[ShuffleKey, _Held] = defaultdict(_Held)

    def begin_epoch(self, placement: LogPlacement) -> None:
        """Refuse the frames of every owner before this placement's epoch, from now on."""
        held = self._held[placement.key]
        with held.lock:
            held.epoch = max(placement.epoch, held.epoch)

    def forget(self, key: ShuffleKey) -> None:
        """Forget a log that was dropped."""
        self._held.pop(key, None)

    def receive(
        self,
        put: LogPut,
        messages: Iterator[flight.FlightStreamChunk],
        answer: Callable[[bytes], None],
    ) -> None:
        """Store what an owner sends, and answer what is durable.

        Raises LogOwnerChangedError if it is not the owner any more.
        """
        placement = self._describe(put.key.id)
        check_rights(put.key, placement.token)
        if placement.epoch != put.epoch or placement.owner == self._folder.store:
            raise _fenced(put, placement.epoch)
        put = put._replace(key=placement.key)
        self.begin_epoch(placement)
        if put.mode is ReplicaMode.FOLLOW:
            self._follow(put, messages, answer)
        elif self._folder.store in (member.store for member in placement.members):
            raise ProtocolError(f"event log {put.key.id!r} is here, and takes no copy")
        else:
            self._resign(put.key)
            self._copy(put, messages, answer)

    def _follow(
        self,
        put: LogPut,
        messages: Iterator[flight.FlightStreamChunk],
        answer: Callable[[bytes], None],
    ) -> None:
        log, held = self._folder.open(put.key), self._held[put.key]
        answer(_receipt(log))
        for message in messages:
            with held.lock:  # or another owner could begin in the middle
                _check_epoch(put, held)
                _store(log, message)
            answer(_receipt(log))

    def _copy(
        self,
        put: LogPut,
        messages: Iterator[flight.FlightStreamChunk],
        answer: Callable[[bytes], None],
    ) -> None:
        copy, held = self._folder.begin_copy(), self._held[put.key]
        try:
            for message in messages:
                _store(copy, message)
            with held.lock:
                _check_epoch(put, held)
                self._folder.finish_copy(put.key, copy)
        except BaseException:
            copy.remove()
            raise
        answer(_receipt(copy))


def _check_epoch(put: LogPut, held: _Held) -> None:
    if held.epoch > put.epoch:
        raise _fenced(put, held.epoch)


def _store(log: DurableLog, message: flight.FlightStreamChunk) -> None:
    if message.data.schema != REPLICA_SCHEMA:
        raise ProtocolError(f"a stream to a replica has the schema {REPLICA_SCHEMA}")
    for value in message.data.column(0):
        frames = decode_frames(memoryview(value.as_buffer() or pa.py_buffer(b"")))
        if frames:
            log.append(frames)
            log.sync()


def _receipt(log: DurableLog) -> bytes:
    return msgspec.json.encode(AppendReceipt(log.low, log.high))


def _fenced(put: LogPut, epoch: int) -> LogOwnerChangedError:
    return LogOwnerChangedError(
        f"event log {put.key.id!r} is at epoch {epoch}: frames of epoch {put.epoch} are refused"
    )
