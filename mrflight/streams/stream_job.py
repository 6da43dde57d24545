"""A job that is a stream, as the commands that look at it need it: nothing runs."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mrflight.config.spec import InputSpec, JobSpec
from mrflight.errors import JobFileError
from mrflight.sources.kafka.client_settings import ClientSettings, client_settings
from mrflight.sources.kafka.topic_offsets import KafkaCluster
from mrflight.storage import Location, locate
from mrflight.storage.option_checks import prepare_storage
from mrflight.streams.stream_settings import StreamSettings
from mrflight.streams.topic_positions import TopicPositions

_TIMEOUT_S = 15.0
"""How long a command waits for brokers: a person waits for it."""


class StreamJob(msgspec.Struct, frozen=True):
    """A stream and its tables."""

    spec: JobSpec
    folder: Path
    settings: StreamSettings

    @classmethod
    def of(cls, spec: JobSpec, folder: Path) -> StreamJob:
        """Check the job of a file in ``folder``; raise JobFileError for what is no stream.

        The offsets of a stream can be looked at in Delta tables only.
        """
        settings = StreamSettings.of(spec)
        if spec.output.format != "delta":
            raise JobFileError(
                f"output.format: the offsets in a table of {spec.output.format} cannot be looked "
                "at yet; this command reads the log of Delta tables"
            )
        prepare_storage(spec, folder)
        return cls(spec, folder, settings)

    @property
    def table(self) -> Location:
        """The table that the events are committed to."""
        return locate(self.spec.output.table, self.folder, self.spec.storage)

    @property
    def dead_letters(self) -> Location | None:
        """The table of events that could not be decoded; None if the stream has none."""
        if self.settings.dead_letter is None:
            return None
        return locate(self.settings.dead_letter, self.folder, self.spec.storage)

    @property
    def input(self) -> InputSpec:
        """The input from Kafka."""
        return self.spec.inputs[self.settings.input]

    @property
    def client(self) -> ClientSettings:
        """How the brokers are reached."""
        return client_settings(self.settings.input, self.input)

    def cluster(self) -> KafkaCluster:
        """Return a connection to the brokers. It connects when it is asked first."""
        return KafkaCluster(self.client, _TIMEOUT_S)

    def positions(self) -> TopicPositions:
        """Ask the brokers for the topics; raises BrokerUnavailableError and InputError."""
        return TopicPositions(self.settings.input, self.input, self.cluster(), self.settings.name)

    @property
    def shapes_rows(self) -> bool:
        """True if the rows of the table are not those of the events, one for each."""
        spec = self.spec
        return bool(
            self.input.is_mapped
            or self.input.format == "arrow"
            or spec.reduce is not None
            or spec.stages
            or spec.job.sql is not None
            or self.input.envelope != "none"
            or len(spec.inputs) > 1
        )
