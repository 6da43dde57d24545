"""What a job file says: frozen structs that know every key and no other.

The structs follow the job file section by section. They are decoded and
checked in `mrflight.config.job_file` and never change after that.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from mrflight.config.secret_options import holds_secret

InputFormat = Literal["csv", "parquet", "arrow", "json", "delta"]
OutputFormat = Literal["delta", "parquet", "csv", "arrow"]
ParquetCodec = Literal["zstd", "snappy", "lz4", "none"]

_HIDDEN = "..."


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class JobSection(_Section, frozen=True):
    """``[job]``: its name and limits."""

    name: str
    timeout: str | None = None
    attempts: int = 4
    """Of a task, until its failure is the job's."""
    speculation: bool = True
    """Whether a task that takes much longer than its peers gets a second attempt beside it."""
    run_id: str | None = None


class CsvOptions(_Section, frozen=True):
    """``[inputs.NAME.csv]``: how a csv file is written."""

    delimiter: str = ","
    header: bool = True
    """False: the first line is data and the columns are ``column_names``, or f0, f1, ..."""
    column_names: list[str] | None = None
    newlines_in_values: bool = False
    """True: a quoted value may hold line ends; such a file is read as one split."""


class InputSpec(_Section, frozen=True):
    """``[inputs.NAME]``: one table."""

    path: str | None = None
    """Of its files; or else ``stage``."""
    stage: str | None = None
    """Whose result it is."""
    format: InputFormat | None = None
    map: str | None = None
    sql: str | None = None
    """In place of a map: of one row, by the input's name, or ``sql_table``."""
    sql_table: str | None = None
    """What ``sql`` calls the rows, where that is not the input's name."""
    key: list[str] = []
    broadcast: bool | None = None
    """Of a join or sql: whether its rows are sent to everyone, as they are few. Where nothing is
    said that is so for a join with an input that is much smaller than the other."""
    columns: list[str] | None = None
    types: dict[str, str] = {}
    """Types of csv and json columns by name (``int64``, ``timestamp[us]``); others are inferred."""
    csv: CsvOptions = CsvOptions()
    version: int | None = None
    """Of a Delta table; its newest unless told."""
    timestamp: datetime | None = None
    """Of a Delta table: the version that was the newest then."""


class ShuffleSection(_Section, frozen=True):
    """``[shuffle]``: how many partitions, and which row goes where."""

    partitions: int | Literal["auto"] = "auto"
    partitioner: str = "hash"
    replicas: int = 1
    compression: Literal["auto", "none", "lz4", "zstd"] = "auto"
    memory: str | None = None
    """What embedded data servers hold together before they spill; their share of
    ``cluster.memory`` unless told."""


class ReduceSection(_Section, frozen=True):
    """``[reduce]``: what is made of each partition; empty means repartition only."""

    group_by: list[str] = []
    aggregate: dict[str, str] = {}
    """Of each group; without ``group_by`` of all rows, which become one row."""
    function: str | None = None
    sql: str | None = None
    """Of whole keys, by the inputs' names."""
    join: Literal["inner", "left", "right", "full", "semi", "anti"] | None = None
    left: str | None = None
    right: str | None = None
    """Of a join: the names of the inputs."""
    distinct: bool = False
    """Rows that are equal in all columns become one."""
    keep: Literal["first", "last"] | None = None
    """Rows with one key become one: by ``order_by``."""
    order_by: list[str] = []
    """As ``sort_by``, of the rows with one key."""
    sort_by: list[str] = []
    """``column [asc|desc] [nulls first|last]``: the order of the result over all part files."""
    limit: int | None = None
    """How many rows the result has at most: the first by ``sort_by``."""

    @property
    def groups(self) -> bool:
        """Whether groups are made: by columns, or one of all rows."""
        return bool(self.group_by or self.aggregate)

    @property
    def is_total(self) -> bool:
        """Whether one row is made of all rows."""
        return bool(self.aggregate) and not self.group_by

    @property
    def orders(self) -> bool:
        """Whether it is the order that decides which rows go where."""
        return bool(self.sort_by) or self.limit is not None


class StageSpec(_Section, frozen=True):
    """``[stages.NAME]``: a shuffle whose result is an input of another one."""

    inputs: dict[str, InputSpec]
    """At least one."""
    shuffle: ShuffleSection = ShuffleSection()
    reduce: ReduceSection | None = None


class OutputSection(_Section, frozen=True):
    """``[output]``: where the result is committed."""

    table: str
    format: OutputFormat = "delta"
    mode: Literal["error", "append", "overwrite", "merge"] = "error"
    keys: list[str] = []
    """Of a merge: the columns that say which row of the table a row of the result is."""
    order_by: str | None = None
    """Of a merge: of several rows of the result with one key the greatest counts."""
    delete_when: str | None = None
    """Of a merge: an SQL predicate; the table's rows with the keys of such rows are removed."""
    schema: Literal["fixed", "evolve"] = "fixed"
    """Of a Delta table that is appended to: whether new columns of the result are added to it."""
    partition_by: list[str] = []
    compression: ParquetCodec | None = None
    """Of parquet files: zstd unless told."""


class ClusterSection(_Section, frozen=True):
    """``[cluster]``: what runs the job."""

    executor: Literal["local", "ray"] = "local"
    ray_address: str | None = None
    """Of a Ray that is there already, as host:port or "auto"; absent: one of this machine that the
    job starts and ends."""
    workers: int | None = None
    """Worker processes; the cores this process may use unless told, or all of Ray's."""
    data_servers: int | None = None
    """Of an embedded cluster; one for every four workers unless told."""
    memory: str | None = None
    """What all processes of the job may hold together; half of what is free unless told."""
    spill_dir: str | None = None
    """Where embedded data servers and workers put what does not fit; the system's temporary
    folder unless told. Relative to the job file."""
    heartbeat_timeout: str = "10 s"
    """An embedded data server that is silent for so long is given up, and its rows made again."""
    call_timeout: str = "30 s"
    """Of a call that a server answers from memory."""
    stream_timeout: str = "1 h"
    """Of sending to, or reading from, one data server in one task."""
    silence_timeout: str = "1 min"
    """How long a data server may take for the next rows of a partition that is read."""
    reconnect_timeout: str = "30 s"
    """How long servers that are gone are waited for: others may be started in their place."""
    metadata: str | None = None
    """Location of a running metadata server; absent: an embedded cluster."""


class JobSpec(_Section, frozen=True):
    """A whole job file."""

    job: JobSection
    inputs: dict[str, InputSpec]
    """At least one."""
    output: OutputSection
    shuffle: ShuffleSection = ShuffleSection()
    reduce: ReduceSection | None = None
    storage: dict[str, str] = {}
    stages: dict[str, StageSpec] = {}
    """That come before the job's own inputs, shuffle and reduce."""
    cluster: ClusterSection = ClusterSection()

    def __repr__(self) -> str:
        """As of any struct, without the secrets of stores: notebooks and failed asserts show it."""
        shown = {
            key: _HIDDEN if holds_secret(key, value) else value
            for key, value in self.storage.items()
        }
        values = {name: getattr(self, name) for name in self.__struct_fields__} | {"storage": shown}
        told = ", ".join(f"{name}={value!r}" for name, value in values.items())
        return f"{type(self).__name__}({told})"

    @property
    def all_inputs(self) -> list[InputSpec]:
        """Of the stages, and then the job's own."""
        sections = [*(stage.inputs for stage in self.stages.values()), self.inputs]
        return [section for inputs in sections for section in inputs.values()]

    @property
    def all_reduces(self) -> list[ReduceSection | None]:
        """Of the stages, and then the job's own."""
        return [*(stage.reduce for stage in self.stages.values()), self.reduce]

    @property
    def has_sql(self) -> bool:
        """Whether DataFusion is needed."""
        in_inputs = any(section.sql is not None for section in self.all_inputs)
        in_reduces = any(each is not None and each.sql is not None for each in self.all_reduces)
        return in_inputs or in_reduces or self.output.delete_when is not None

    @property
    def paths(self) -> list[str]:
        """Of the inputs and the output, as they are written."""
        read = [section.path for section in self.all_inputs if section.path is not None]
        return [*read, self.output.table]
