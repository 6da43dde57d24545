"""The content of a job file, as frozen structs, one for each section.

They are decoded in `mrflight.config.job_file`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from mrflight.config.aggregates import may_have_expression
from mrflight.config.input_frame import InputFrame
from mrflight.config.row_steps import Call, RowStep
from mrflight.config.secret_options import USERINFO, holds_secret
from mrflight.config.stream_batch import StreamBatch
from mrflight.config.stream_section import StreamSection
from mrflight.config.text_options import CsvOptions, JsonOptions
from mrflight.config.transport import Transport
from mrflight.config.unstored_columns import UnstoredColumns

InputFormat = Literal["csv", "parquet", "arrow", "json", "delta", "iceberg", "ducklake"]
MessageFormat = Literal["avro", "protobuf", "raw"]
"""The formats that only messages have; they may have some of files, too."""

OutputFormat = Literal["delta", "parquet", "csv", "arrow", "iceberg", "ducklake"]
CATALOG_FORMATS = ("iceberg", "ducklake")
"""The formats whose tables have a name in a catalog, and not a path."""
ParquetCodec = Literal["zstd", "snappy", "lz4", "none"]

_HIDDEN = "..."


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


def _without_userinfo(section: msgspec.Struct) -> str:
    """Return the text of a section, in which URLs have neither user nor password."""
    values = ((name, getattr(section, name)) for name in section.__struct_fields__)
    fields = ", ".join(f"{name}={value!r}" for name, value in values)
    return USERINFO.sub(f"{_HIDDEN}@", f"{type(section).__name__}({fields})")


class JobSection(_Section, frozen=True):
    """``[job]``: the name and the limits of the job."""

    name: str
    sql: str | None = None
    """A query over the inputs, which are tables by their names. It takes the place of a reduce."""
    functions: dict[str, str] = {}
    """The functions that ``sql`` calls, ``module:function``, by their names in it."""
    timeout: str | None = None
    attempts: int = 4
    """The number of attempts of a task before the job fails."""
    speculation: bool = True
    """True if a task that takes much longer than others gets a speculative attempt."""
    run_id: str | None = None
    """Names a run, which is then committed once even if the job is run again."""
    events: str | None = None
    """The folder, relative to the job file, in which each run writes a file of its events."""


class InputSpec(_Section, frozen=True):
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
    """The event log of the cluster at ``cluster.metadata`` that it reads, in place of files."""
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
        return _without_userinfo(self)

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


class ShuffleSection(_Section, frozen=True):
    """``[shuffle]``: the number of partitions, and how rows are assigned to them."""

    partitions: int | Literal["auto"] = "auto"
    partitioner: str = "hash"
    replicas: int = 1
    compression: Literal["auto", "none", "lz4", "zstd"] = "auto"
    memory: str | None = None
    """The memory of all embedded data servers together, beyond which they spill; by default their
    part of ``cluster.memory``."""


class ReduceSection(_Section, frozen=True):
    """``[reduce]``: how each partition is reduced. An empty section only repartitions."""

    group_by: list[str] = []
    aggregate: dict[str, str] = {}
    """The aggregates of each group; without ``group_by``, of all rows, which become one row."""
    function: str | None = None
    sql: str | None = None
    """A query over all rows of a key. It names the inputs by their names."""
    join: Literal["inner", "left", "right", "full", "semi", "anti"] | None = None
    left: str | None = None
    right: str | None = None
    """The inputs of a join, by name."""
    distinct: bool = False
    """Keeps one of the rows that are equal in all columns."""
    keep: Literal["first", "last"] | None = None
    """Keeps the first or the last row of each key, by ``order_by``."""
    order_by: list[str] = []
    """The order of the rows of one key, written like ``sort_by``."""
    sort_by: list[str] = []
    """``column [asc|desc] [nulls first|last]``: the order of the result over all part files."""
    limit: int | None = None
    """Keeps only so many rows: the first ones by ``sort_by``."""

    @property
    def groups(self) -> bool:
        """True if rows are grouped: by columns, or all of them into one group."""
        return bool(self.group_by or self.aggregate)

    @property
    def is_total(self) -> bool:
        """True if all rows are aggregated into one."""
        return bool(self.aggregate) and not self.group_by

    @property
    def has_sql(self) -> bool:
        """True if the reduce may need DataFusion."""
        return self.sql is not None or any(map(may_have_expression, self.aggregate.values()))

    @property
    def orders(self) -> bool:
        """True if rows are assigned to partitions by their order."""
        return bool(self.sort_by) or self.limit is not None


class StageSpec(_Section, frozen=True):
    """``[stages.NAME]``: a shuffle whose result is the input of another stage, or of the job."""

    inputs: dict[str, InputSpec]
    """At least one input."""
    sql: str | None = None
    """A query over the inputs, in place of a reduce; see `JobSection.sql`."""
    functions: dict[str, str] = {}
    """See `JobSection.functions`."""
    shuffle: ShuffleSection = ShuffleSection()
    reduce: ReduceSection | None = None


class OutputSection(_Section, frozen=True):
    """``[output]``: where the result is committed."""

    table: str
    format: OutputFormat = "delta"
    mode: Literal["error", "append", "overwrite", "merge"] = "error"
    keys: list[str] = []
    """The key columns of a merge."""
    order_by: str | None = None
    """A merge keeps, of several result rows with one key, the one with the greatest value here."""
    delete_when: str | None = None
    """An SQL predicate. A merge deletes the rows of the table whose key is that of a result row for
    which it holds."""
    schema: Literal["fixed", "evolve"] = "fixed"
    """``evolve`` adds new columns of the result to a table that is appended to."""
    partition_by: list[str] = []
    compression: ParquetCodec | None = None
    """The codec of parquet files; by default zstd."""
    catalog: str | None = None
    """The URI of the catalog of an Iceberg or DuckLake table, or a reference to a secret that has
    it."""
    warehouse: str | None = None
    """The warehouse of an Iceberg catalog, if it needs one: a path or a URL."""
    catalog_options: dict[str, str] = {}
    """Further properties of the catalog. Values may be references to secrets."""
    data_path: str | None = None
    """The folder of the files of a new DuckLake."""
    unstored: UnstoredColumns | None = None
    """The columns of change events that a merge does not store. A job file cannot have them."""

    def __repr__(self) -> str:
        return _without_userinfo(self)

    @property
    def in_catalog(self) -> bool:
        """True if ``table`` is the name of a table in a catalog, and not a path."""
        return self.format in CATALOG_FORMATS

    @property
    def paths(self) -> list[str]:
        """The paths that are written, as far as the job file names them."""
        if self.in_catalog:
            return [*filter(None, (self.warehouse, self.data_path))]
        return [self.table]


NO_OUTPUT = OutputSection(table="")
"""Stands for the output of a stage whose rows another stage reads, and of a job whose rows its
caller reads."""


class TlsSection(_Section, frozen=True):
    """``[cluster.tls]``: the certificates with which a job calls a standing cluster.

    Paths are relative to the job file.
    """

    ca: str
    """The file of the certificate authority that signed the servers' certificates."""
    certificate: str | None = None
    """The file of the job's own certificate, for servers that verify their clients."""
    key: str | None = None
    """The file of the key of ``certificate``."""


class ClusterSection(_Section, frozen=True):
    """``[cluster]``: where the job runs, and with which resources."""

    executor: Literal["local", "ray"] = "local"
    ray_address: str | None = None
    """A running Ray cluster, as host:port or "auto". Without it the job starts a Ray of its own on
    this machine, and ends it."""
    insecure_ray: bool = False
    """Whether the job may use a Ray that other machines reach and that asks for no token, so that
    whoever reaches it runs code there."""
    workers: int | None = None
    """The number of worker processes; by default that of the cores of this process, or of Ray."""
    data_servers: int | None = None
    """The number of data servers of an embedded cluster; by default one for every four workers."""
    memory: str | None = None
    """The memory of all processes of the job together; by default half of the free memory."""
    spill_dir: str | None = None
    """The folder to which embedded data servers and workers spill, relative to the job file; by
    default the system's temporary folder."""
    heartbeat_timeout: str = "10 s"
    """An embedded data server without a heartbeat for this long is declared lost, and its rows are
    produced again."""
    call_timeout: str = "30 s"
    """The timeout of a call that a server answers from memory."""
    stream_timeout: str = "1 h"
    """The timeout of sending to, or reading from, one data server in one task."""
    silence_timeout: str = "1 min"
    """The timeout of the next rows of a partition that is read from a data server."""
    reconnect_timeout: str = "30 s"
    """The time to wait for servers that are gone, because replacements may be starting."""
    transport: Transport = "auto"
    """How rows go to and from data servers: "auto" through shared memory where both are on one
    machine and over Flight otherwise, "flight" always over Flight; with "shared" a job fails if
    there is no shared memory."""
    page: bool | int = False
    """True to serve a page of the job on a free loopback port while it runs, or the port."""
    metadata: str | None = None
    """The location of a running metadata server. Without it the job runs an embedded cluster."""
    tls: TlsSection | None = None
    """Needed if ``metadata`` is a ``grpc+tls://`` location."""
    token: str | None = None
    """Where the job's token for the servers of ``metadata`` is: ``env:NAME`` or ``file:PATH``."""


class JobSpec(_Section, frozen=True):
    """A whole job file."""

    job: JobSection
    inputs: dict[str, InputSpec]
    """At least one input."""
    output: OutputSection
    shuffle: ShuffleSection = ShuffleSection()
    reduce: ReduceSection | None = None
    storage: dict[str, str] = {}
    stages: dict[str, StageSpec] = {}
    """Run before the job's own inputs, shuffle and reduce."""
    cluster: ClusterSection = ClusterSection()
    stream: StreamSection | None = None
    """Set if the job is a stream, which `mrflight ingest` runs batch by batch."""

    def __repr__(self) -> str:
        """Hide the secrets of stores, because notebooks and failed assertions show this."""
        shown = {
            key: _HIDDEN if holds_secret(key, value) else value
            for key, value in self.storage.items()
        }
        values = {name: getattr(self, name) for name in self.__struct_fields__} | {"storage": shown}
        fields = ", ".join(f"{name}={value!r}" for name, value in values.items())
        return f"{type(self).__name__}({fields})"

    @property
    def all_inputs(self) -> list[InputSpec]:
        """The inputs of the stages, and then the job's own."""
        sections = [*(stage.inputs for stage in self.stages.values()), self.inputs]
        return [section for inputs in sections for section in inputs.values()]

    @property
    def all_reduces(self) -> list[ReduceSection | None]:
        """The reduces of the stages, and then the job's own."""
        return [*(stage.reduce for stage in self.stages.values()), self.reduce]

    @property
    def has_sql(self) -> bool:
        """True if the job needs DataFusion."""
        in_inputs = any(section.has_sql for section in self.all_inputs)
        in_reduces = any(each is not None and each.has_sql for each in self.all_reduces)
        in_output = self.output.delete_when is not None
        return in_inputs or in_reduces or self.has_query or in_output

    @property
    def has_query(self) -> bool:
        """True if the result of a stage, or of the job, is that of a query over its inputs."""
        queries = (self.job.sql, *(stage.sql for stage in self.stages.values()))
        return any(each is not None for each in queries)

    @property
    def is_map_only(self) -> bool:
        """True if the maps write the result: events of a stream that nothing brings together.

        The number of part files of other inputs is that of the partitions, which readers rely on.
        """
        sections = self.inputs.values()
        is_stream = all(each.kafka is not None or each.batch is not None for each in sections)
        return (
            (is_stream or (self.stream is not None and len(sections) == 1))
            and self.has_output
            and not self.stages
            and self.reduce is None
            and self.job.sql is None
            and self.shuffle.partitions == "auto"
            and self.shuffle.partitioner == "round_robin"
        )

    @property
    def has_functions(self) -> bool:
        """True if functions of the user work on rows, and may take any time for each."""
        of_reduces = (each is not None and each.function for each in self.all_reduces)
        of_inputs = (each.functions for each in self.all_inputs)
        return any(of_inputs) or any(of_reduces) or bool(self.query_functions)

    @property
    def query_functions(self) -> list[str]:
        """The functions that queries of the stages, or of the job, call, as the job names them."""
        named = [self.job.functions, *(stage.functions for stage in self.stages.values())]
        return [text for functions in named for text in functions.values()]

    @property
    def has_frames(self) -> bool:
        """True if rows of the Python program are inputs."""
        return any(section.frame is not None for section in self.all_inputs)

    @property
    def paths(self) -> list[str]:
        """The paths of the inputs and of what is written, as the job file writes them."""
        read = [path for section in self.all_inputs for path in section.paths]
        folders = [each.bad_rows_folder for each in self.all_inputs]
        warehouses = [each.warehouse for each in self.all_inputs]
        written = [*filter(None, folders), *(self.output.paths if self.has_output else [])]
        return [*read, *filter(None, warehouses), *written]

    @property
    def is_live(self) -> bool:
        """True if it is a stream whose events can be read before they are committed."""
        return self.stream is not None and self.stream.live

    @property
    def feeds_tail(self) -> bool:
        """True if a worker feeds the tail of the stream.

        An event log is a tail itself, if its rows are neither mapped nor merged into the table.
        """
        are_fed = (each.log is None or each.is_mapped for each in self.inputs.values())
        return self.is_live and (self.output.mode == "merge" or any(are_fed))

    @property
    def has_output(self) -> bool:
        """Whether the result is written, and not read by another stage or by the caller."""
        return self.output != NO_OUTPUT
