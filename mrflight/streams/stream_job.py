"""A job that is a stream, as the commands that look at it need it: nothing runs."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mrflight.config.input_spec import InputSpec
from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError
from mrflight.sinks import output_url
from mrflight.sources.kafka.client_settings import ClientSettings, client_settings
from mrflight.sources.kafka.topic_offsets import KafkaCluster
from mrflight.storage import Location, locate
from mrflight.storage.option_checks import prepare_storage
from mrflight.streams.open_positions import open_positions
from mrflight.streams.positions import Positions
from mrflight.streams.stream_settings import StreamSettings
from mrflight.streams.stream_table import StreamTable

_TIMEOUT_S = 15.0
"""How long a command waits for brokers: a person waits for it."""


class StreamJob(msgspec.Struct, frozen=True):
    """A stream and its tables."""

    spec: JobSpec
    folder: Path
    settings: StreamSettings

    @classmethod
    def of(cls, spec: JobSpec, folder: Path) -> StreamJob:
        """Check the job of a file in ``folder``; raise JobFileError for what is no stream."""
        settings = StreamSettings.of(spec)
        prepare_storage(spec, folder)
        return cls(spec, folder, settings)

    @property
    def url(self) -> str:
        """The URL of the table that the events are committed to."""
        return output_url(self.spec.output, self.folder, self.spec.storage)

    def open_table(self) -> StreamTable | None:
        """Open the table that the events are committed to; None if there is none.

        Raises OutputError and CommitError if it cannot be read.
        """
        output, storage = self.spec.output, self.spec.storage
        if output.format == "delta":
            from mrflight.streams.delta_stream_table import DeltaStreamTable

            return DeltaStreamTable.open(locate(output.table, self.folder, storage))
        from mrflight.streams.catalog_stream_tables import IcebergStreamTable, LakeStreamTable

        kind = IcebergStreamTable if output.format == "iceberg" else LakeStreamTable
        return kind.open(output, self.folder, storage)

    def check_is_topic(self) -> None:
        """Raise JobFileError for an event log, which has no events to decode."""
        if self.input.kafka is None:
            raise JobFileError(
                f"inputs.{self.settings.input}: this command is for topics of Kafka; the rows of "
                "an event log are decoded already"
            )

    @property
    def dead_letters(self) -> Location | None:
        """The table of events that could not be decoded; None if the stream has none."""
        if self.settings.dead_letter is None:
            return None
        return locate(self.settings.dead_letter, self.folder, self.spec.storage)

    @property
    def input(self) -> InputSpec:
        """The input that is a stream."""
        return self.spec.inputs[self.settings.input]

    @property
    def client(self) -> ClientSettings:
        """How the brokers are reached."""
        return client_settings(self.settings.input, self.input)

    def cluster(self) -> KafkaCluster:
        """Return a connection to the brokers. It connects when it is asked first."""
        return KafkaCluster(self.client, _TIMEOUT_S)

    def positions(self) -> Positions:
        """Ask for the partitions; raises InputError, and retryable errors of servers."""
        return open_positions(self.spec, self.folder, self.settings, _TIMEOUT_S)

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
