"""``[inputs.NAME]``: one input of a job, which may be files, a table, a stream or a stage."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from mrflight.config.formats import CATALOG_FORMATS, InputFormat, MessageFormat
from mrflight.config.input_frame import InputFrame
from mrflight.config.row_steps import Call, RowStep
from mrflight.config.secret_reference import is_reference
from mrflight.config.service_uri import shown_section
from mrflight.config.stream_batch import StreamBatch
from mrflight.config.text_options import CsvOptions, JsonOptions


class InputSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[inputs.NAME]``: one input table."""

    path: str | list[str] | None = None
    """The path of its files, or several. An input has either this, ``kafka``, ``stage`` or
    ``frame``. Of an Iceberg table it is the name, ``namespace.name``."""
    stage: str | None = None
    """The stage whose result it is."""
    kafka: str | None = None
    """The brokers of a Kafka cluster, ``host:port`` with commas between them."""
    topic: str | None = None
    """The topic whose messages are read. An input from Kafka has either this, ``topics`` or
    ``topic_pattern``."""
    topics: list[str] | None = None
    topic_pattern: str | None = None
    """A regular expression that the whole names of topics match."""
    start: str | dict[str, int] = "earliest"
    """Where to begin: ``earliest``, ``latest``, a time, or the offset of each partition."""
    registry: str | None = None
    """The URL of the schema registry that has the schemas of avro messages."""
    message: str | None = None
    """The full name of the messages' type in a file of protobuf descriptors, ``schema``."""
    envelope: Literal["none", "debezium"] = "none"
    """What is around the rows in the messages."""
    metadata: bool = False
    """True if the topic, partition, offset, timestamp, key and headers of a message are columns:
    ``_topic`` and so on."""
    client: dict[str, str] = {}
    """Settings of librdkafka, which may be references to secrets."""
    batch: StreamBatch | None = None
    """What one batch of a stream reads. A job file cannot have it."""
    frame: InputFrame | None = None
    """The rows of a job in Python that are in its process. A job file cannot have them."""
    log: str | None = None
    """The event log of the cluster at ``cluster.metadata`` that it reads, in place of files: its
    name, its handle, or a reference to that."""
    format: InputFormat | MessageFormat | None = None
    filter: str | None = None
    """An SQL condition on a row. Rows for which it is not true are left out before ``map`` or
    ``sql``, and files that have no others are not read."""
    map: str | None = None
    sql: str | None = None
    """A query over one row at a time, instead of a map. It names the rows by the input's name, or
    by ``sql_table``."""
    sql_table: str | None = None
    """The table's name in ``filter`` and ``sql``, if it is not the input's name."""
    steps: tuple[RowStep, ...] = ()
    """Further maps, one after the other, as the methods of a `Dataset` write them."""
    key: list[str] = []
    broadcast: bool | None = None
    """True if all of its rows are sent to every task of a join or sql. By default a join broadcasts
    an input that is much smaller than the other."""
    columns: list[str] | None = None
    types: dict[str, str] = {}
    """The types of columns of csv, json and ``key=value`` folders (``int64``, ``timestamp[us]``);
    others are inferred."""
    csv: CsvOptions = CsvOptions()
    json: JsonOptions = JsonOptions()
    bad_rows: str = "fail"
    """What to do with rows of csv and json that cannot be read: ``fail``, ``skip``, or the folder
    to which they are written."""
    schema: str = "strict"
    """``strict`` or ``union``: then a column that a file lacks is null, and one of several types
    has the widest. For messages of Kafka, the file of their schema, relative to the job file."""
    hive: bool = True
    """True if the names of ``key=value`` folders are columns."""
    version: int | None = None
    """The version of a Delta table, or the snapshot of another table, to read; by default the
    newest."""
    timestamp: datetime | None = None
    """Reads the version of a table that was the newest at this time."""
    fresh: bool = False
    """True if the rows of live streams that a Delta table does not have yet are read as well."""
    catalog: str | None = None
    """The URI of the catalog of an Iceberg or DuckLake table, or a reference to a secret that has
    it."""
    warehouse: str | None = None
    """The warehouse of an Iceberg catalog, if it needs one."""
    catalog_options: dict[str, str] = {}
    """Further properties of the catalog. Values may be references to secrets."""
    sample: float = 1.0
    """The fraction of the files' bytes that is read."""

    def __repr__(self) -> str:
        return shown_section(self)

    @property
    def in_catalog(self) -> bool:
        """True if its path is the name of a table in a catalog."""
        return self.format in CATALOG_FORMATS

    @property
    def paths(self) -> list[str]:
        """The paths of its files; none if it has no files, or if a catalog tells them."""
        if self.path is None or self.in_catalog:
            return []
        return [self.path] if isinstance(self.path, str) else self.path

    @property
    def bad_rows_folder(self) -> str | None:
        """The folder to which bad rows are written; None if they are not."""
        return None if self.bad_rows in ("fail", "skip") else self.bad_rows

    @property
    def is_mapped(self) -> bool:
        """True if the rows are mapped before they are shuffled."""
        return bool(self.functions) or self.has_sql

    @property
    def functions(self) -> list[str]:
        """The functions that map the rows, as the job names them."""
        later = [step.function for step in self.steps if isinstance(step, Call)]
        return later if self.map is None else [self.map, *later]

    @property
    def has_sql(self) -> bool:
        """True if mapping the rows needs DataFusion."""
        in_steps = any(not isinstance(step, Call) for step in self.steps)
        return in_steps or self.filter is not None or self.sql is not None

    def without_maps(self) -> InputSpec:
        """Return the input of rows that are mapped already."""
        return msgspec.structs.replace(self, filter=None, map=None, sql=None, steps=())


def shown_log(log: str) -> str:
    """Return how messages name an event log: without the token of a handle."""
    return log if is_reference(log) else log.partition(":")[0]
