"""A stream with a real Delta table and scripted brokers, and the job that commands look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from mrflight.config.job_file import decode_job
from mrflight.errors import BrokerUnavailableError
from mrflight.sinks import open_sink
from mrflight.sources.kafka.topic_offsets import KafkaCluster
from mrflight.storage import locate
from mrflight.streams.dead_letters import DeadLetters
from mrflight.streams.positions import Positions
from mrflight.streams.stream_job import StreamJob
from tests.support.streams.scripted_stream import ScriptedStream, Sections, document


class ScriptedJob(StreamJob, frozen=True):
    """The job of a scripted stream, whose brokers are the script's; None if they are away."""

    stream: Any = None

    def cluster(self) -> KafkaCluster:
        """Return the scripted brokers."""
        if self.stream is None:
            raise BrokerUnavailableError("inputs.events: the brokers do not answer")
        return cast(KafkaCluster, self.stream.broker)

    def positions(self) -> Positions:
        """Return the positions on the scripted brokers."""
        return cast(Positions, self.stream.positions())


def delta_stream(folder: Path, job: Sections | None = None) -> ScriptedStream:
    """Return a stream that commits to a Delta table in a folder, with real dead letters."""
    stream = ScriptedStream(job or {}, folder=folder)
    spec = stream.spec
    stream.open_sink = lambda job_id: open_sink(spec.output, folder, spec.storage, job_id, None)
    if (table := stream.settings.dead_letter) is not None:
        real = DeadLetters(locate(table, folder, {}), stream.settings.name)
        stream.open_dead_letters = lambda: real
    stream.broker.make()
    return stream


def job_of(stream: ScriptedStream, *, has_brokers: bool = True) -> ScriptedJob:
    """Return the job of a stream, as commands look at it."""
    spec = decode_job(document(stream.job))
    found = ScriptedJob.of(spec, stream.folder)
    return ScriptedJob(found.spec, found.folder, found.settings, stream if has_brokers else None)
