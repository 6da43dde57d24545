"""Lists the modules that the processes of a job will import, from the spec of the job.

The fork server loads them once. Otherwise every worker would import them in its first map and its
first reduce, for 30 to 40 ms each.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from glob import iglob
from itertools import islice
from pathlib import Path

from mrflight.config.input_spec import InputSpec
from mrflight.config.pickled_functions import split_pickled
from mrflight.config.spec import JobSpec
from mrflight.sources.formats import format_of
from mrflight.sources.packing import ONE_MAP_BYTES, OPEN_BYTES

_TASKS = ("map_output", "reduce_task", "sample_task", "partial_aggregate_task")
_DIRECT_TASKS = ("direct_task",)

_DIRECT_BYTES = 8 * 2**20
"""A larger file is cut into several maps."""
_MANY_FILES = ONE_MAP_BYTES // OPEN_BYTES + 1
"""So many files are more than one map reads."""


def is_likely_direct(spec: JobSpec, folder: Path) -> bool:
    """Return whether the job seems to need one map and one partition, and so no servers.

    This does not open the input. If it is wrong, the servers start once the job is planned.
    """
    if spec.stream is not None:
        return spec.is_map_only
    sections = list(spec.all_inputs)
    if len(sections) != 1 or not spec.has_output or spec.shuffle.partitions not in ("auto", 1):
        return False
    try:
        sizes = [each for path in sections[0].paths for each in _sizes(path, folder)]
    except (OSError, ValueError):
        return False
    if len(sizes) == 1:
        return sizes[0] <= _DIRECT_BYTES
    if spec.shuffle.partitions == 1 or spec.has_functions:
        return False
    return 0 < sum(size + OPEN_BYTES for size in sizes) <= ONE_MAP_BYTES


def _sizes(path: str, folder: Path) -> Iterator[int]:
    """Yield the sizes of the files of a path; raise OSError if it is not local, or has folders."""
    if "://" in path:
        raise FileNotFoundError(path)
    found = folder / path
    pattern = found / "*" if found.is_dir() else found
    files = [Path(each) for each in islice(iglob(str(pattern)), _MANY_FILES)]
    if not files:
        raise FileNotFoundError(path)
    for file in files:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(file)
        yield status.st_size


def fork_server_modules(spec: JobSpec, *, is_direct: bool) -> list[str]:
    """Return the modules that the servers and workers of a job need."""
    has_servers = not spec.cluster.metadata and not is_direct
    servers = ["mrflight.servers.metadata", "mrflight.servers.data"] if has_servers else []
    return worker_modules(spec, is_direct=is_direct) + servers


def driver_modules(spec: JobSpec) -> list[str]:
    """Return the modules that the driver needs until its job is committed."""
    modules = ["mrflight.planner.analyze", "mrflight.scheduler.stage_scheduler"]
    if spec.has_output:
        modules.append(f"mrflight.sinks.{_sink(spec)}.sink")
    if spec.output.mode == "merge":
        modules.append("mrflight.sinks.delta.merge_sink")
    return modules


def worker_modules(spec: JobSpec, *, is_direct: bool = False) -> list[str]:
    """Return the modules that the workers need; ``is_direct``: without a shuffle."""
    inputs = [module for section in spec.all_inputs for module in _readers_of(section)]
    modules = [
        "mrflight.runtime.worker",
        *(f"mrflight.tasks.{name}" for name in (_DIRECT_TASKS if is_direct else _TASKS)),
        *(f"mrflight.sources.{module}" for module in dict.fromkeys(inputs)),
        "mrflight.sources.packed_reader",
    ]
    if spec.has_output:
        modules += ["mrflight.sinks.parts.part_writer", f"mrflight.sinks.parts.{_encoder(spec)}"]
    if spec.output.mode == "merge":
        modules.append("mrflight.sinks.delta.merge_writer")
    if not (is_direct and _only_sums(spec)):  # otherwise the one worker loads them if it must
        modules.append("pyarrow.compute")
        if any(reduce is not None and reduce.groups for reduce in spec.all_reduces):
            modules.append("pyarrow.acero")  # `pyarrow.Table.group_by` needs it
    if any(split_pickled(text) for text in _functions(spec)):
        modules.append("cloudpickle")
    if spec.feeds_tail:
        modules.append("mrflight.tasks.tail_feed")
    if len(spec.all_inputs) > 1:  # they may be joined where one of them is read
        modules.append("mrflight.tasks.broadcast_join")
    if any(reduce is not None and reduce.sql for reduce in spec.all_reduces):
        modules.append("mrflight.tasks.cogroup_kinds")
    if spec.has_query:
        modules += ["mrflight.tasks.broadcast_join", "mrflight.tasks.fragment"]
    if spec.has_sql:  # after the worker's module, which keeps it from loading pandas
        modules += ["datafusion", "mrflight.compute.sql.planned_query"]
    return modules


def _only_sums(spec: JobSpec) -> bool:
    """Return whether a job only adds up values, which needs no `pyarrow.compute` for integers.

    The spec does not tell their types.
    """
    aggregates = [
        text
        for reduce in spec.all_reduces
        if reduce is not None
        for text in reduce.aggregate.values()
    ]
    if not aggregates or spec.has_sql or spec.has_functions:
        return False
    return all(text.startswith("sum(") for text in aggregates)


def _sink(spec: JobSpec) -> str:
    return (
        spec.output.format if spec.output.format in ("delta", "iceberg", "ducklake") else "folder"
    )


def _encoder(spec: JobSpec) -> str:
    is_parquet = spec.output.format in ("delta", "parquet", "iceberg", "ducklake")
    return "parquet_encoder" if is_parquet else "encoders"


def _functions(spec: JobSpec) -> Iterator[str]:
    """Yield the functions, as the job names them."""
    shuffles = [spec.shuffle, *(stage.shuffle for stage in spec.stages.values())]
    yield from (shuffle.partitioner for shuffle in shuffles)
    for section in spec.all_inputs:
        yield from section.functions
    reduces = [reduce.function for reduce in spec.all_reduces if reduce is not None]
    yield from filter(None, reduces)
    yield from spec.query_functions


def _readers_of(section: InputSpec) -> Iterator[str]:
    """Yield the modules that read an input, as far as its paths tell."""
    if section.kafka is not None:
        yield "kafka.kafka_reader"
        yield f"kafka.formats.{section.format}_format"
    elif section.format is not None:
        yield f"{section.format}_source"
    elif section.frame is not None or section.log is not None:
        yield "arrow_source"  # see `mrflight.sources.frame_source`
    else:
        yield from (f"{format}_source" for format in filter(None, map(format_of, section.paths)))
