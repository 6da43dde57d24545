"""Opens what a stream reads: asks the servers for its partitions."""

from __future__ import annotations

from pathlib import Path

from mrflight.config.spec import JobSpec
from mrflight.sinks import output_url
from mrflight.sources.kafka.client_settings import client_settings
from mrflight.sources.kafka.topic_offsets import DEFAULT_TIMEOUT_S, KafkaCluster
from mrflight.sources.log_source import LogInput
from mrflight.streams.positions import Positions
from mrflight.streams.stream_settings import StreamSettings


def open_positions(
    spec: JobSpec, folder: Path, settings: StreamSettings, timeout_s: float = DEFAULT_TIMEOUT_S
) -> Positions:
    """Return the partitions of a stream; raise InputError, and retryable errors of servers.

    ``timeout_s`` is how long brokers may take for an answer.
    """
    name, section = settings.input, spec.inputs[settings.input]
    if section.log is not None:
        from mrflight.streams.log_positions import LogPositions

        place = LogInput.of(name, spec.cluster, folder)
        return LogPositions(name, section, place, is_live=settings.is_live)
    from mrflight.streams.kept_start import KeptStart
    from mrflight.streams.topic_positions import TopicPositions

    cluster = KafkaCluster(client_settings(name, section), timeout_s)
    url = output_url(spec.output, folder, spec.storage)
    group = f"mrflight.{settings.name}"
    return TopicPositions(
        name, section, cluster, KeptStart(cluster, group, f"{section.start} {url}")
    )
