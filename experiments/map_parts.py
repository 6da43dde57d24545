"""Measure the processor time of maps: reading, SQL and combining.

    python -m experiments.map_parts [--scale 1] [--rounds 3] [--queries q1,q6]

The maps that the driver plans for the jobs of examples/tpch, if they read files, run one after the
other in this process, in one thread, up to what they would send.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from experiments import report, tpch
from experiments.datasets import WORK
from mrflight.config.job_file import load_job
from mrflight.config.settings import RunSettings
from mrflight.config.spec import JobSpec
from mrflight.ids import new_job_id
from mrflight.planner.analyze import plan_inputs
from mrflight.sources.base import Reader, Split
from mrflight.tasks.mapper import Mapper, RowMap
from mrflight.tasks.operators.combiner import MapCombiner

PARTS = ("read", "sql", "combine")


class Maps(NamedTuple):
    """The maps of one input of a query."""

    query: str
    input: str
    reader: Reader
    splits: Sequence[Split]
    row_map: RowMap | None
    combiner: Callable[[], MapCombiner | None]


def maps_of(query: str, data: Path) -> Iterator[Maps]:
    """Yield the maps of a query that read the tables of a folder."""
    job = tpch.EXAMPLE / f"{query}.toml"
    spec = load_job(job, dict(inputs_in(data, load_job(job, {}))))
    settings = RunSettings.of(spec, job.parent)
    plan = plan_inputs(spec, job.parent, new_job_id(), settings.workers, settings.memory)
    for stage in plan.plans.values():
        for name, tasks in groupby(stage.map_tasks, attrgetter("input_name")):
            first, *others = tasks
            splits = [first.split, *(task.split for task in others)]
            combiner = partial(first.reduce_spec.combiner, first.limits.combiner_bytes)
            yield Maps(query, name, first.reader, splits, first.row_map, combiner)
        if stage.stream is not None:  # its rows are joined before they are sent
            source = stage.stream.source
            row_map = stage.stream.row_map
            yield Maps(query, source.name, source.reader, source.splits, row_map, lambda: None)


def inputs_in(data: Path, spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield the settings with which the inputs are read from a folder."""
    sections = {"": spec.inputs, **{f"stages.{n}.": each.inputs for n, each in spec.stages.items()}}
    for stage, inputs in sections.items():
        for name, section in inputs.items():
            if section.path is not None:
                yield f"{stage}inputs.{name}.path", str(data / Path(section.path).name)


class _Clock:
    """Measures the processor time until batches come. It includes the time of their own inputs."""

    def __init__(self) -> None:
        self.spent_ns: Counter[str] = Counter()

    def timed(self, part: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given = iter(batches)
        while True:
            began = time.thread_time_ns()
            batch = next(given, None)
            self.spent_ns[part] += time.thread_time_ns() - began
            if batch is None:
                return
            yield batch


class _TimedReader(Reader):
    def __init__(self, reader: Reader, clock: _Clock) -> None:
        self.schema = reader.schema
        self._reader = reader
        self._clock = clock

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        return self._clock.timed("read", self._reader.read(split))


def nanoseconds(maps: Maps) -> dict[str, float]:
    """Return the nanoseconds of processor time per row that is read, by part, in one run."""
    clock, rows = _Clock(), 0
    reader = _TimedReader(maps.reader, clock)
    for split in maps.splits:
        mapper = Mapper(reader, split, maps.row_map)
        batches = clock.timed("sql", mapper.batches())
        if (combiner := maps.combiner()) is not None:
            batches = clock.timed("combine", combiner(batches))
        for _ in batches:
            pass
        rows += mapper.rows_in
    read, mapped = clock.spent_ns["read"], clock.spent_ns["sql"]
    combined = max(mapped, clock.spent_ns["combine"])
    apart = {"read": read, "sql": mapped - read, "combine": combined - mapped}
    return {"rows": rows, **{part: spent / max(1, rows) for part, spent in apart.items()}}


def page(figures: list[dict[str, object]]) -> str:
    lines = [
        "| query | input | rows | read, ns a row | sql | combine |",
        "|---|---|---|---|---|---|",
    ]
    for each in figures:
        parts = " | ".join(f"{each[part]:.0f}" for part in PARTS)
        lines.append(f"| {each['query']} | {each['input']} | {each['rows']:,} | {parts} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts")
    parser.add_argument("--queries", default=",".join(tpch.QUERIES))
    parser.add_argument("--data", type=Path, default=WORK, help="inputs are kept there")
    parser.add_argument("--out", type=Path, default=WORK / "map_parts")
    options = parser.parse_args()
    pa.set_cpu_count(1)
    data = tpch.prepare(options.scale, options.data.absolute())
    figures = []
    for query in options.queries.split(","):
        for maps in maps_of(query, data):
            if not maps.splits:  # the input is an earlier stage, which has not run
                continue
            runs = [nanoseconds(maps) for _ in range(options.rounds)]
            medians = {part: statistics.median(run[part] for run in runs) for part in runs[0]}
            figures.append({"query": query, "input": maps.input, **medians})
    report.write(options.out, "map_parts", {"scale": options.scale, "maps": figures}, page(figures))


if __name__ == "__main__":
    main()
