"""What the processes of a job will import: told by the job file, before anything is looked at.

The fork server loads it once. Left to the tasks, every worker imports it in its first map and
its first reduce: 30 to 40 ms each.
"""

from __future__ import annotations

from collections.abc import Iterator

from mrflight.config.pickled_functions import split_pickled
from mrflight.config.spec import InputSpec, JobSpec
from mrflight.sources.formats import format_of

_ENCODERS = {"delta": "parquet", "parquet": "parquet", "csv": "csv", "arrow": "arrow"}


def modules_for(spec: JobSpec) -> list[str]:
    """The modules that the servers and workers of a job need, in processes of one origin."""
    own = [] if spec.cluster.metadata else ["metadata", "data"]
    return driver_modules(spec) + [f"mrflight.servers.{kind}" for kind in own]


def driver_modules(spec: JobSpec) -> list[str]:
    """Those that its workers need, and those by which the driver commits what they wrote."""
    modules = [*worker_modules(spec), f"mrflight.sinks.{_sink(spec)}.sink"]
    if spec.output.mode == "merge":
        modules.append("mrflight.sinks.delta.merge_sink")
    return modules


def worker_modules(spec: JobSpec) -> list[str]:
    """Those that its workers need."""
    inputs = filter(None, map(_format_of, spec.all_inputs))
    modules = [
        "mrflight.runtime.worker",
        *(f"mrflight.sources.{format}_source" for format in dict.fromkeys(inputs)),
        "mrflight.sinks.parts.part_writer",
        f"mrflight.sinks.parts.{_ENCODERS[spec.output.format]}_encoder",
    ]
    if spec.output.mode == "merge":
        modules.append("mrflight.sinks.delta.merge_writer")
    if any(reduce is not None and reduce.groups for reduce in spec.all_reduces):
        modules.append("pyarrow.acero")  # by which `pyarrow.Table.group_by` groups
    if any(split_pickled(text) for text in _functions(spec)):
        modules.append("cloudpickle")
    if len(spec.all_inputs) > 1:  # which may meet where one of them is read
        modules.append("mrflight.tasks.broadcast_join")
    if any(reduce is not None and reduce.sql for reduce in spec.all_reduces):
        modules.append("mrflight.tasks.cogroup")
    if spec.has_sql:  # after the workers' module, without which it would load pandas
        modules += ["datafusion", "mrflight.compute.sql.planned_query"]
    return modules


def _sink(spec: JobSpec) -> str:
    return "delta" if spec.output.format == "delta" else "folder"


def _functions(spec: JobSpec) -> Iterator[str]:
    """As the job names them."""
    shuffles = [spec.shuffle, *(stage.shuffle for stage in spec.stages.values())]
    yield from (shuffle.partitioner for shuffle in shuffles)
    named = [section.map for section in spec.all_inputs]
    named += [reduce.function for reduce in spec.all_reduces if reduce is not None]
    yield from filter(None, named)


def _format_of(section: InputSpec) -> str | None:
    """The format of an input; None where only its folder can tell."""
    return section.format or (format_of(section.path) if section.path is not None else None)
