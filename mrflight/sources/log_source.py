"""An event log of a running cluster as a bounded input: ranges of offsets are its splits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_fields
from pathlib import Path

import pyarrow as pa

from mrflight.config.cluster_section import ClusterSection
from mrflight.config.identity import ClientOptions
from mrflight.config.input_spec import InputSpec
from mrflight.config.secret_reference import beside
from mrflight.config.settings import client_options
from mrflight.errors import ColumnNotFoundError, InputError, JobFileError
from mrflight.ids import ShuffleKey
from mrflight.shuffle.client.log_client import LogClient, parse_handle
from mrflight.sources.arrow_source import slices
from mrflight.sources.base import Reader, Source, Split
from mrflight.sources.schema_check import check_column_types


@dataclass(frozen=True)
class LogReader(Reader):
    """Reads rows of an event log. The units of its splits are rows, and their path is the log."""

    location: str
    """The location of the cluster's metadata server."""
    key: ShuffleKey
    client: ClientOptions
    schema: pa.Schema

    def select(self, columns: Sequence[str]) -> LogReader:
        return with_fields(self, schema=pa.schema([self.schema.field(name) for name in columns]))

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        next_row = split.start
        with LogClient(self.location, self.client) as client:
            for part in client.read(self.key, split.start, split.stop):
                next_row = part.stop
                yield from slices(part.rows.select(self.schema.names))
        if next_row != split.stop:
            raise InputError(
                f"event log {self.key.id!r} has no rows {next_row} to {split.stop}, which it had "
                "when the job was planned; was it dropped and made again?"
            )

    def count_rows(self, piece: Split) -> int | None:
        return piece.stop - piece.start


@dataclass(frozen=True)
class LogInput:
    """Where the event logs of a job are, and as whom it reads them."""

    location: str
    client: ClientOptions
    folder: Path = Path()
    """That of the job file, beside which the files with handles are."""

    def key(self, name: str, spec: InputSpec) -> ShuffleKey:
        """Return the log of input ``name``; raise JobFileError and ProtocolError."""
        assert spec.log is not None, "the input is no event log"
        return parse_handle(beside(spec.log, self.folder), f"inputs.{name}.log")

    @classmethod
    def of(cls, name: str, cluster: ClusterSection, folder: Path) -> LogInput:
        """Return it for input ``name``; raise JobFileError for a job without a standing cluster."""
        if cluster.metadata is None:
            raise JobFileError(
                f"inputs.{name}.log is an event log of a running cluster; write cluster.metadata, "
                "the location of its metadata server"
            )
        return cls(cluster.metadata, client_options(cluster, folder), folder)


def open_log(
    name: str,
    spec: InputSpec,
    log_input: LogInput,
    split_bytes: int,
    offsets: tuple[int, int] | None = None,
) -> Source:
    """Return the source of an event log: the ``offsets`` from the first up to the second.

    By default all rows that are kept, up to the last that is durable now. Raises
    EventLogNotFoundError, ColumnNotFoundError, and InputError for a log without a schema.
    """
    key = log_input.key(name, spec)
    with LogClient(log_input.location, log_input.client) as client:
        key = client.describe(key).key
        state = client.state(key)
    if not state.schema:
        raise InputError(
            f"inputs.{name}: event log {key.id!r} has no rows yet, and so no columns; append to it "
            "first"
        )
    schema = pa.ipc.read_schema(pa.py_buffer(state.schema))
    check_column_types(schema, f"inputs.{name}")
    for column in spec.columns or ():
        if column not in schema.names:
            where = f"inputs.{name}.columns: event log {key.id!r}"
            raise ColumnNotFoundError.among(column, schema.names, where)
    start, stop = offsets or (state.low, state.high)
    kept_rows = max(1, state.high - state.low)
    size_bytes = state.size_bytes * (stop - start) // kept_rows
    split = Split(key.id, start, stop, size_bytes)
    source = Source(
        name,
        LogReader(log_input.location, key, log_input.client, schema),
        (),
        size_bytes,
        tuple(split.divide(-(-size_bytes // split_bytes))),
        rows=stop - start,
    )
    return source.select(spec.columns) if spec.columns else source
