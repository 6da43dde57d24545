"""Topics of Kafka as a source: its partitions and ranges of offsets are the splits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from msgspec import structs

from mrflight.config.input_spec import InputSpec
from mrflight.config.kafka_input import parse_start_time
from mrflight.errors import ColumnNotFoundError, InputError, LostOffsetsError
from mrflight.sources.bad_rows import BadRowLog
from mrflight.sources.base import Source, Split, pack_splits
from mrflight.sources.kafka.client_settings import DEFAULT_MEMORY_BYTES, client_settings
from mrflight.sources.kafka.formats.opening import open_format
from mrflight.sources.kafka.kafka_reader import KafkaReader
from mrflight.sources.kafka.messages import METADATA, Messages
from mrflight.sources.kafka.offset_range import (
    OffsetRange,
    divide_evenly,
    partition_path,
    split_of,
)
from mrflight.sources.kafka.sampled_messages import (
    DEFAULT_MESSAGE_BYTES,
    mean_bytes,
    sample_messages,
)
from mrflight.sources.kafka.topic_offsets import KafkaCluster, Partition, PartitionOffsets, Topics


def open_kafka(
    name: str,
    spec: InputSpec,
    ranges: Sequence[OffsetRange],
    folder: Path,
    *,
    schema: pa.Schema | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> Source:
    """Return the source of some ranges of offsets, with a split for each.

    ``folder`` is the job file's. ``schema`` are the columns without the metadata, as
    ``source.reader.format.schema`` of an earlier source has them; without it they are those of the
    job file, and else inferred from the first messages of the ranges, which are fetched for that.
    The consumers of a process hold at most ``memory_bytes``. Raises JobFileError,
    ColumnNotFoundError, InputError and BrokerUnavailableError.
    """
    settings = client_settings(name, spec, memory_bytes)
    spec = _without_added_columns(spec)
    sampled: list[Messages] = []

    def sample() -> list[Messages]:
        sampled.extend(sample_messages(settings, ranges))
        return sampled

    format = open_format(name, spec, folder, schema, sample)
    columns = _columns(name, spec, format.schema)
    bad_rows = None if spec.bad_rows == "fail" else BadRowLog()
    has_metadata = bool(_added(spec))
    reader = KafkaReader(settings, format, columns, has_metadata, bad_rows)
    message_bytes = mean_bytes(sampled) if sampled else DEFAULT_MESSAGE_BYTES
    splits = tuple(split_of(each, message_bytes) for each in ranges if each.count > 0)
    return Source(
        name,
        reader,
        tuple(dict.fromkeys(partition_path(each.topic, each.partition) for each in ranges)),
        sum(split.size_bytes for split in splits),
        splits or (_empty_split(ranges),),
    )


def open_available(name: str, spec: InputSpec, folder: Path) -> Source:
    """Return the source of an input from its start to the ends that its partitions have now."""
    cluster = KafkaCluster(client_settings(name, spec))
    topics = find_topics(cluster, spec)
    ends = cluster.offsets(topics.partitions)
    starts = find_starts(cluster, name, spec, ends)
    ranges = [
        OffsetRange(topic, number, starts[topic, number], max(end.latest, starts[topic, number]))
        for (topic, number), end in ends.items()
    ]
    return open_kafka(name, spec, ranges, folder)


def open_batch(name: str, spec: InputSpec, folder: Path) -> Source:
    """Return the source of a batch of a stream, whose splits are not cut again."""
    assert spec.batch is not None, name
    ranges = [OffsetRange(*place, *range) for place, range in spec.batch.ranges.items()]
    batch = spec.batch
    source = open_kafka(
        name, spec, ranges, folder, schema=batch.schema, memory_bytes=batch.memory_bytes
    )
    if not source.size_bytes:
        return source
    assert isinstance(source.reader, KafkaReader)
    event_bytes = max(1, source.size_bytes // sum(each.count for each in ranges))
    splits = [
        pack_splits([split_of(each, event_bytes) for each in group])
        for group in divide_evenly(ranges, batch.splits)
    ]
    return structs.replace(source, reader=replace(source.reader, is_cut=True), splits=tuple(splits))


def find_topics(cluster: KafkaCluster, spec: InputSpec) -> Topics:
    """Return the topics of an input; raises InputError for one that the cluster does not have."""
    names = spec.topics or ([] if spec.topic is None else [spec.topic])
    return cluster.topics(names, spec.topic_pattern)


def find_starts(
    cluster: KafkaCluster,
    name: str,
    spec: InputSpec,
    offsets: dict[Partition, PartitionOffsets],
) -> dict[Partition, int]:
    """Return where ``start`` is in each partition, given its first and last offsets.

    A partition that a table of offsets leaves out begins with its first message. Raises
    LostOffsetsError for an offset that is not there any more, and InputError for one that is not
    there yet.
    """
    if isinstance(spec.start, dict):
        return _given_starts(name, spec.start, offsets)
    if spec.start == "earliest":
        return {each: found.earliest for each, found in offsets.items()}
    if spec.start == "latest":
        return {each: found.latest for each, found in offsets.items()}
    return cluster.offsets_at(offsets, parse_start_time(spec.start, f"inputs.{name}"))


def _given_starts(
    name: str, given: dict[str, int], offsets: dict[Partition, PartitionOffsets]
) -> dict[Partition, int]:
    starts = {each: found.earliest for each, found in offsets.items()}
    key = f"inputs.{name}.start"
    for number, offset in given.items():
        partition = next((each for each in offsets if each[1] == int(number)), None)
        if partition is None:
            raise InputError(f"{key}: the topic has {len(offsets)} partitions, and no {number}")
        found, at = offsets[partition], partition_path(*partition)
        if offset < found.earliest:
            raise LostOffsetsError(
                f"{key}: {at} has no offset {offset:,} any more: the first that is there is "
                f"{found.earliest:,}; begin there if the others are not needed",
                *partition,
                offset,
                found.earliest,
            )
        if offset > found.latest:
            raise InputError(
                f"{key}: {at} has no offset {offset:,} yet: it ends at {found.latest:,}"
            )
        starts[partition] = offset
    return starts


def _columns(name: str, spec: InputSpec, schema: pa.Schema) -> pa.Schema:
    """Return the columns that are read: those of the format, and then those of the metadata."""
    added = _added(spec)
    for column in added.names:
        if column in schema.names:
            key = "metadata" if spec.metadata and column in METADATA.names else "envelope"
            raise InputError(
                f"inputs.{name}.{key}: the messages have a field {column!r} of their own; "
                f"leave it out with inputs.{name}.columns"
            )
    selected = spec.columns or schema.names
    for column in selected:
        if column not in schema.names:
            where = f"inputs.{name}.columns: the schema of the messages"
            raise ColumnNotFoundError.among(column, list(schema.names), where)
    fields = [schema.field(column) for column in selected]
    return pa.schema([*fields, *added])


def _added(spec: InputSpec) -> pa.Schema:
    """Return the columns that are not of the messages' values."""
    metadata = METADATA if spec.metadata else pa.schema([])
    if spec.envelope == "none":
        return metadata
    from mrflight.sources.kafka.changes.change_format import ADDED_FIELDS

    return pa.schema([*ADDED_FIELDS, *(f for f in metadata if f.name not in ADDED_FIELDS.names)])


def _without_added_columns(spec: InputSpec) -> InputSpec:
    """Return the input whose ``columns`` are only those of the messages' values."""
    added = _added(spec).names
    if not added or spec.columns is None:
        return spec
    columns = [each for each in spec.columns if each not in added]
    return structs.replace(spec, columns=columns or None)


def _empty_split(ranges: Sequence[OffsetRange]) -> Split:
    """Return a split without messages, as some task has to report the columns."""
    first = ranges[0] if ranges else OffsetRange("none", 0, 0, 0)
    return Split(partition_path(first.topic, first.partition), first.start, first.start, 0)
