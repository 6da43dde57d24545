"""Where a stream is in its topics: what the table has recorded, and what the cluster has."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from concurrent.futures import Future, wait
from datetime import datetime
from typing import Any

from mrflight.config.input_spec import InputSpec
from mrflight.config.kafka_input import parse_start_time
from mrflight.errors import InputError, LostOffsetsError, MrflightError
from mrflight.sources.kafka.topic_offsets import KafkaCluster, Partition, Topics
from mrflight.sources.recorded_names import of_partitions
from mrflight.streams.kept_start import KeptStart
from mrflight.streams.positions import Position, Positions

log = logging.getLogger(__name__)

_PUBLISH_EVERY_S = 5.0
_PUBLISH_WAIT_S = 1.0
"""The coordinator of a group may be away for a minute after its broker was lost, and commits to the
table need it for nothing."""


class TopicPositions(Positions):
    """The partitions of the topics of a Kafka cluster."""

    def __init__(self, name: str, spec: InputSpec, cluster: KafkaCluster, kept: KeptStart) -> None:
        self._kept_start = kept
        self._published_at = 0.0
        self._publishing: Future[Any] | None = None
        self._key = f"inputs.{name}"
        self._spec = spec
        self._cluster = cluster
        self._topics = self._look()

    @property
    def partitions(self) -> list[Partition]:
        return self._topics.partitions

    def _look(self) -> Topics:
        spec = self._spec
        names = [spec.topic] if spec.topic is not None else spec.topics or []
        return self._cluster.topics(names, spec.topic_pattern)

    def refresh(self) -> None:
        before, self._topics = self._topics, self._look()
        self._check_names({_name(before, each): 0 for each in before.partitions})
        self._kept_start.renew()

    def name(self, partition: Partition) -> str:
        return _name(self._topics, partition)

    def ends(self) -> Position:
        offsets = self._cluster.offsets(self._topics.partitions)
        return {partition: each.latest for partition, each in offsets.items()}

    def position(self, recorded: Mapping[str, int]) -> Position:
        recorded = of_partitions(recorded)
        self._check_names(recorded)
        known = {
            each: recorded[name]
            for each in self._topics.partitions
            if (name := self.name(each)) in recorded
        }
        if not recorded and self._spec.start != "earliest":
            known = self._kept_start.read(self._names)
        unknown = [each for each in self._topics.partitions if each not in known]
        if known or not unknown:
            first = self._cluster.offsets(unknown) if unknown else {}
            return {**known, **{each: offsets.earliest for each, offsets in first.items()}}
        return self._start(unknown)

    def check_kept(self, position: Position, *, takes_earliest: bool) -> Position:
        offsets = self._cluster.offsets(position)
        kept = dict(position)
        for partition, each in offsets.items():
            wanted = position[partition]
            if each.earliest > wanted:
                if not takes_earliest:
                    raise lost_offsets(self._key, partition, wanted, each.earliest)
                kept[partition] = each.earliest
            elif wanted > each.latest:
                raise InputError(
                    f"{self._key}: partition {partition[1]} of {partition[0]} ends at offset "
                    f"{each.latest}, and the table has recorded {wanted} as the next one: the "
                    "topic has lost events that were committed to the table; restore it, or begin "
                    "anew under another stream.name"
                )
        return kept

    @property
    def _names(self) -> dict[Partition, str]:
        return {each: self.name(each) for each in self.partitions}

    def keep_start(self, position: Position) -> None:
        self._kept_start.keep(position, self._names)

    def committed(self, recorded: Mapping[str, int]) -> None:
        """Publish the offsets as those of the stream's group, now and then.

        Lag tools show them. A user who may not write them has the stream all the same.
        """
        if time.monotonic() - self._published_at < _PUBLISH_EVERY_S:
            return
        self._kept_start.forget()
        if self._publishing is not None and not self._publishing.done():
            return
        offsets = {
            each: recorded[name]
            for each in self.partitions
            if (name := self.name(each)) in recorded
        }
        group = self._kept_start.group
        try:
            self._publishing = self._cluster.begin_publishing(group, offsets)
            done, _ = wait([self._publishing], _PUBLISH_WAIT_S)
            error = self._publishing.exception() if done else None
        except MrflightError as refused:
            error = refused
        self._published_at = time.monotonic()
        if error is not None:
            log.debug("the offsets of group %s were not published: %s", group, error)

    def _start(self, partitions: list[Partition]) -> Position:
        start = self._spec.start
        offsets = self._cluster.offsets(partitions)
        if isinstance(start, dict):
            (topic,) = {topic for topic, _ in partitions}
            wanted = {(topic, int(number)): offset for number, offset in start.items()}
            if foreign := sorted(set(wanted) - set(partitions)):
                raise InputError(
                    f"{self._key}.start: {topic} has no partition {foreign[0][1]}; it has "
                    f"{len(partitions)}"
                )
            return {each: wanted.get(each, offsets[each].earliest) for each in partitions}
        if start == "earliest":
            return {each: found.earliest for each, found in offsets.items()}
        if start == "latest":
            return {each: found.latest for each, found in offsets.items()}
        return self._cluster.offsets_at(partitions, self._start_time(start))

    def _start_time(self, text: str) -> datetime:
        return parse_start_time(text, self._key)

    def _check_names(self, recorded: Mapping[str, int]) -> None:
        """Raise InputError if a recorded topic has another id now, or another cluster answers."""
        ids = {topic.name: _url_safe(topic.id) for topic in self._topics.topics}
        for name in recorded:
            cluster, topic, topic_id, _ = name.split("/")
            if topic not in ids:
                continue  # it was removed from the input
            if cluster != self._topics.cluster_id:
                raise InputError(
                    f"{self._key}.kafka: the table has offsets of {topic} in cluster {cluster}, "
                    f"and {self._spec.kafka} is cluster {self._topics.cluster_id}; name the "
                    "brokers of that cluster, or begin anew under another stream.name"
                )
            if topic_id != ids[topic]:
                raise InputError(
                    f"{self._key}.topic: {topic} was made anew since the table recorded its "
                    f"offsets (its id was {topic_id} and is {ids[topic]}), so that the offsets "
                    "mean other events now; begin anew under another stream.name, or write to "
                    "another table"
                )


def _name(topics: Topics, partition: Partition) -> str:
    topic, number = partition
    return f"{topics.cluster_id}/{topic}/{_url_safe(topics.topic(topic).id)}/{number}"


def _url_safe(topic_id: str) -> str:
    """Return the id of a topic as Kafka's own tools write it; librdkafka's may have slashes."""
    return topic_id.replace("/", "_").replace("+", "-")


def lost_offsets(key: str, partition: Partition, wanted: int, earliest: int) -> LostOffsetsError:
    """Return the error for events that Kafka has deleted before they were read."""
    topic, number = partition
    return LostOffsetsError(
        f"{key}: the events {wanted} to {earliest - 1} of partition {number} of {topic} are not in "
        "Kafka any more, and were never read: its retention was shorter than the stream was away; "
        'set stream.on_lost_offsets = "earliest" to go on without them',
        topic,
        number,
        wanted,
        earliest,
    )
