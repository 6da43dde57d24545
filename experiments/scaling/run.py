"""Run one job without data, with this process as its driver.

``python -m experiments.scaling.run`` prints the result as JSON.
"""

from __future__ import annotations

import argparse
import cProfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from experiments.scaling.cluster import Resumed, SimulatedCluster, resume, simulated_cluster
from experiments.scaling.measured import Step, Steps
from experiments.scaling.simulated_worker import REDUCES_TO
from experiments.scaling.size import SCHEMA, Size
from mrflight.config.identity import ClientOptions
from mrflight.config.job_file import decode_job
from mrflight.config.memory import Processes, divide_memory
from mrflight.config.spec import JobSpec
from mrflight.events.recorder import Recorder
from mrflight.planner.job_plan import JobPlan, plan_job
from mrflight.planner.stages import build_stages
from mrflight.scheduler.bad_row_files import BadRowFiles
from mrflight.scheduler.job_context import JobContext
from mrflight.scheduler.metrics import JobMetrics, PhaseTimer
from mrflight.scheduler.shuffles import JobShuffles
from mrflight.scheduler.stage_runner import StageRunner
from mrflight.scheduler.stage_scheduler import StageScheduler
from mrflight.shuffle.wire.idle_connections import keep_idle
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Commit
from mrflight.sinks.parts.base import PartFile
from mrflight.sources.base import DECOMPRESSION_RATIO, Source, Split
from mrflight.sources.parquet_source import ParquetReader
from mrflight.storage import locate
from mrflight.storage.part_name import partition_of_part
from mrflight.system.deadlines import NO_DEADLINE
from mrflight.system.progress import NO_WORK, ProgressReport, Work
from mrflight.tasks.task_memory import TaskMemory

_READY = {"map": "shuffle made", "reduce": "layout, reduces planned"}
"""The step before each stage."""

_NODES = 100
_NODE_BYTES = 64 * 2**30


class Run(msgspec.Struct):
    """The figures of one job."""

    size: Size
    steps: list[Step]
    journal_bytes: int
    resumed: Resumed
    parts: int


@dataclass
class _Reported(ProgressReport):
    """Measures a job's stages as steps, and also the preparation of each stage."""

    steps: Steps
    cluster: SimulatedCluster
    size: Size

    def begin(self, stage: str, tasks: int, size_bytes: int = 0, at_once: int = 1) -> None:
        self._stage = stage
        self.steps.end(_READY[stage])
        if stage == "reduce" and self.size.loses:
            self.cluster.notify_servers("lose")
            self.steps.end("a server leaves")

    def advance(self, work: Work = NO_WORK, tasks: int = 1) -> None: ...

    def end(self, note: str) -> None:
        self.steps.end(self._stage)

    def notify(self, line: str) -> None: ...


def run(size: Size, folder: Path) -> Run:
    """Run a job; raise AssertionError if its result is not what was sent."""
    journal = folder / "journal"
    with simulated_cluster(size, journal) as cluster:
        steps = Steps(cluster.metadata_pid, cluster.traffic)
        spec = _spec(size)
        source = _source(spec, size, folder)
        sink = open_sink(spec.output, folder, {}, "scale", None)
        steps.end("input listed")
        plan = _plan(spec, source, size, folder)
        steps.end("plan")
        report = _Reported(steps, cluster, size)
        with _scheduler(spec, plan, cluster, report) as scheduler:
            reduced = scheduler.write(sink.part_writer)
            parts = tuple(part for result in reduced for part in result.parts)
            Commit(parts, reduced[0].schema)
            steps.end("parts listed")
        _check(size, plan, parts)
    return Run(size, steps.done, journal.stat().st_size, resume(journal), len(parts))


def _spec(size: Size) -> JobSpec:
    return decode_job(
        {
            "job": {"name": "scale"},
            "inputs": {"visits": {"path": "visits/*.parquet", "key": ["url"]}},
            "shuffle": {"partitions": size.partitions},
            "reduce": {
                "group_by": ["url"],
                "aggregate": {"clicks": "sum(clicks)", "spent": "sum(spent)"},
            },
            "output": {"table": "out"},
        }
    )


def _source(spec: JobSpec, size: Size, folder: Path) -> Source:
    """Return a source of files with a row group each."""
    files = tuple(f"visits/day={n // 100:03d}/{n:05d}.parquet" for n in range(size.maps))
    splits = tuple(Split(file, 0, 1, size.map_bytes // DECOMPRESSION_RATIO) for file in files)
    total = sum(split.size_bytes for split in splits)
    reader = ParquetReader(SCHEMA, root=locate("visits", folder, spec.storage))
    return Source("visits", reader, files, total, splits, DECOMPRESSION_RATIO)


def _plan(spec: JobSpec, source: Source, size: Size, folder: Path) -> JobPlan:
    memory = divide_memory(_NODES * _NODE_BYTES, Processes(size.workers, size.servers))
    sources = {"": {source.name: source}}
    return plan_job(build_stages(spec), sources, str(folder), "scale", size.workers, memory)


@contextmanager
def _scheduler(
    spec: JobSpec, plan: JobPlan, cluster: SimulatedCluster, report: _Reported
) -> Iterator[StageScheduler]:
    """Return the job, on a cluster that ends with it, so that no server has to drop its blocks."""
    folder, events = Path(plan.folder), Recorder(report)
    with JobShuffles(
        cluster.metadata, spec, ClientOptions(), NO_DEADLINE, events, is_standing=False
    ) as shuffles:
        context = JobContext(
            StageRunner(cluster.executor, events, speculates=False),
            shuffles,
            JobMetrics(PhaseTimer(time.monotonic())),
            NO_DEADLINE,
            TaskMemory(plan.memory.reducer, folder),
            BadRowFiles((), "scale"),
        )
        yield StageScheduler(plan, context, max_runs=1)


def _check(size: Size, plan: JobPlan, parts: Sequence[PartFile]) -> None:
    """Raise AssertionError unless every partition has its file, with the rows sent to it."""
    rows, _ = size.all_sent()
    found = {partition_of_part(part.path): part.rows for part in parts}
    expected = {number: int(sent) // REDUCES_TO for number, sent in enumerate(rows)}
    if found != expected or len(parts) != size.partitions:
        raise AssertionError(f"{len(parts)} parts do not have the rows that maps have sent")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--maps", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--servers", type=int, default=200)
    parser.add_argument("--loses", action="store_true", help="a data server, in the reduces")
    parser.add_argument("--profile", type=Path, help="of the driver's main thread")
    options = parser.parse_args()
    size = Size(options.maps, options.partitions, options.servers, loses=options.loses)
    keep_idle()  # as a driver does
    with tempfile.TemporaryDirectory() as folder, cProfile.Profile() as profile:
        if options.profile is None:
            profile.disable()
        done = run(size, Path(folder))
    if options.profile is not None:
        profile.dump_stats(options.profile)
    print(msgspec.json.encode(done).decode())


if __name__ == "__main__":
    main()
