"""A whole job file, as frozen structs, one for each section.

They are decoded in `mrflight.config.job_file`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from mrflight.config.cluster_section import ClusterSection
from mrflight.config.input_spec import InputSpec
from mrflight.config.output_section import NO_OUTPUT, OutputSection
from mrflight.config.reduce_section import ReduceSection
from mrflight.config.secret_options import HIDDEN, holds_secret
from mrflight.config.stream_section import StreamSection


class JobSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
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


class ShuffleSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[shuffle]``: the number of partitions, and how rows are assigned to them."""

    partitions: int | Literal["auto"] = "auto"
    partitioner: str = "hash"
    replicas: int = 1
    compression: Literal["auto", "none", "lz4", "zstd"] = "auto"
    memory: str | None = None
    """The memory of all embedded data servers together, beyond which they spill; by default their
    part of ``cluster.memory``."""


class StageSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[stages.NAME]``: a shuffle whose result is the input of another stage, or of the job."""

    inputs: dict[str, InputSpec]
    """At least one input."""
    sql: str | None = None
    """A query over the inputs, in place of a reduce; see `JobSection.sql`."""
    functions: dict[str, str] = {}
    """See `JobSection.functions`."""
    shuffle: ShuffleSection = ShuffleSection()
    reduce: ReduceSection | None = None


class JobSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
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
            key: HIDDEN if holds_secret(key, value) else value
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
