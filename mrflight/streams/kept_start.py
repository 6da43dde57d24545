"""Keeps where a stream began until its table records its offsets.

A table whose columns are not known before the first event cannot record the start, and "latest"
means another offset at every start. So the start is kept with the offsets that the stream publishes
as those of its consumer group. Once the table has recorded offsets, they alone count.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from hashlib import sha256

from mrflight.errors import MrflightError
from mrflight.sources.kafka.topic_offsets import KafkaCluster, Partition
from mrflight.streams.positions import Position

log = logging.getLogger(__name__)


class KeptStart:
    """The start of a stream, in the consumer group of its published offsets.

    Each offset has a note, which tells it from one that was published for lag tools: it names the
    partition, with the id of its topic, and what ``identity`` names, the table and the ``start``.
    A user who may not use the group has the stream all the same.
    """

    def __init__(self, cluster: KafkaCluster, group: str, identity: str) -> None:
        self.group = group
        self._cluster = cluster
        self._identity = identity
        self._kept: Position = {}
        self._notes: dict[Partition, str] = {}
        self._was_told = False

    def read(self, names: Mapping[Partition, str]) -> Position:
        """Return the offsets that are kept, of the partitions with these names.

        Raises BrokerUnavailableError.
        """
        try:
            found = self._cluster.published(self.group, names)
        except MrflightError as error:
            self._tell(error)
            return {}
        return {
            each: offset
            for each, (offset, note) in found.items()
            if note == self._note(names[each])
        }

    def keep(self, position: Position, names: Mapping[Partition, str]) -> None:
        """Keep a start, as long as it is renewed. Raises BrokerUnavailableError."""
        self._kept = dict(position)
        self._notes = {each: self._note(names[each]) for each in position}
        self.renew()

    def renew(self) -> None:
        """Publish the start again, which Kafka forgets after ``offsets.retention.minutes``.

        Raises BrokerUnavailableError.
        """
        if not self._kept:
            return
        try:
            self._cluster.publish(self.group, self._kept, self._notes)
        except MrflightError as error:
            self._kept = {}
            self._tell(error)

    def forget(self) -> None:
        """Renew it no more, because the table has recorded offsets."""
        self._kept = {}

    def _note(self, name: str) -> str:
        return f"start {sha256(f'{name} {self._identity}'.encode()).hexdigest()[:32]}"

    def _tell(self, error: MrflightError) -> None:
        """Say once that the start is not kept; raise the error if it may be later."""
        if error.retryable:
            raise error
        if self._was_told:
            return
        self._was_told = True
        log.warning(
            "where the stream began is not kept before its first commit, so that it may begin "
            "later if it starts again before: %s",
            error,
        )
