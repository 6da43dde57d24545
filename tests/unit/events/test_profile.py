"""Where the time of a job went, and what stands out in it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from mrflight.events.job_view import JobView, fold
from mrflight.events.kinds import (
    AnyEvent,
    AttemptEnded,
    JobBegan,
    JobPlanned,
    OperatorWork,
    PlannedStage,
    QueryStage,
    ServersSampled,
    ServerUse,
    StageBegan,
    StageEnded,
)
from mrflight.events.partition_sizes import MAX_PARTITIONS, partitions_written
from mrflight.events.profile import profile
from mrflight.events.recorder import Recorder
from mrflight.result import Finding, OperatorProfile

MIB = 2**20
BEGAN = JobBegan(job_id="j", name="n", version="1", host="h", pid=1, memory_bytes=2**30)


def stage(number: int, name: str, tasks: int, *, within: bool = False) -> StageBegan:
    return StageBegan(
        at=10.0 * number, stage=number, name=name, tasks=tasks, size_bytes=MIB, within=within
    )


def attempt(
    number: int,
    task: int,
    seconds: float,
    worker: str = "worker0",
    size_bytes: int = MIB,
    attempt: int = 0,
    spilled_bytes: int = 0,
) -> AttemptEnded:
    return AttemptEnded(
        stage=number,
        task=task,
        name=f"task {task}",
        worker=worker,
        seconds=seconds,
        size_bytes=size_bytes,
        attempt=attempt,
        spilled_bytes=spilled_bytes,
    )


def end(number: int, seconds: float) -> StageEnded:
    return StageEnded(at=10.0 * number + seconds, stage=number)


def view(*events: AnyEvent) -> JobView:
    return fold([BEGAN, *events])


def findings(*events: AnyEvent) -> tuple[Finding, ...]:
    return profile(view(*events)).findings


def test_a_line_says_what_a_stage_took_with_what_ran_again_of_it() -> None:
    found = profile(
        view(
            stage(0, "map", 3),
            *(attempt(0, task, seconds) for task, seconds in enumerate((1.0, 4.0, 2.0))),
            end(0, 5.0),
            stage(1, "reduce", 1),
            stage(2, "map", 1, within=True),
            attempt(2, 1, 3.0, attempt=1),
            end(2, 3.0),
            attempt(1, 0, 6.0, size_bytes=0),
            end(1, 6.5),
            stage(3, "commit", 1),
            attempt(3, 0, 1.0, "driver"),
            end(3, 1.0),
        )
    )
    assert found.lines() == [
        "map: 3 tasks in 5.00 s, median 2.50 s, longest 4.00 s; 4.0 MiB read, 1 retried",
        "reduce: 1 task in 6.50 s, median 6.00 s, longest 6.00 s",
    ]
    assert found.stages[0].longest_task == "task 1"


def test_what_operators_did_is_added_up_once_for_each_task() -> None:
    """Of two attempts, of which one is binned, and of one that does again what was lost."""
    work = (OperatorWork(2, 0.5), OperatorWork(10, 0.25))
    runs = QueryStage("sql 1", ("FilterExec: x", "Exchange: hash"))
    ended = AttemptEnded(stage=0, task=0, operators=work, memory_bytes=7)
    recorder = Recorder(max_attempts=2)
    with recorder:
        recorder.record(BEGAN)
        recorder.record(StageBegan(stage=0, name="map sql 2 rows", tasks=2, runs=runs))
        for each in (ended, replace(ended, again=True), replace(ended, task=1)):
            recorder.record(each)
        recorder.record(replace(ended, outcome="failed", memory_bytes=9))
        recorder.record(StageEnded(stage=0))
        (found,) = recorder.read(profile).stages
    assert (found.query_stage, found.memory_bytes) == ("sql 1", 9)
    assert found.operators == (
        OperatorProfile("FilterExec: x", 4, 1.0),
        OperatorProfile("Exchange: hash", 20, 0.5),
    )


def test_five_stages_have_a_line_and_the_others_one_together() -> None:
    events: list[AnyEvent] = []
    for number in range(8):
        events += [
            stage(number, f"map {number}", 1),
            attempt(number, 0, 1.0),
            end(number, 1.0 + number),
        ]
    lines = profile(view(*events)).lines()
    assert [line.partition(":")[0] for line in lines] == [
        *(f"map {number}" for number in range(3, 8)),
        "3 other stages",
    ]
    assert lines[-1] == "3 other stages: 6.00 s"


def written(sizes: Sequence[int], *, adaptive: bool) -> list[AnyEvent]:
    planned = JobPlanned(stages=(PlannedStage("", len(sizes), adaptive=adaptive),))
    rows = [min(size, 1) for size in sizes]
    return [planned, stage(0, "map", 1), partitions_written(0, "s", rows, sizes)]


@pytest.mark.parametrize("adaptive", [True, False])
def test_a_partition_that_is_five_times_the_median_is_named(adaptive: bool) -> None:
    (found,) = findings(*written([MIB, 0, 5 * MIB, MIB, MIB], adaptive=adaptive))
    assert (found.kind, found.stage) == ("skewed_partition", "map")
    assert found.message == "partition 2 of map has 5.0 MiB, 5 times the median"
    assert found.setting == ("" if adaptive else "shuffle.partitions")


@pytest.mark.parametrize(
    "sizes", [[MIB, 5 * MIB - 1, MIB], [9, 99, 9], [0, 9 * MIB, 0], [], [0, 0]]
)
def test_partitions_that_are_alike_small_or_alone_are_not_named(sizes: list[int]) -> None:
    assert findings(*written(sizes, adaptive=True)) == ()


def test_neighbours_of_many_partitions_are_added_up() -> None:
    sizes = [1] * MAX_PARTITIONS + [7]
    event = partitions_written(0, "s", sizes, sizes)
    assert (event.width, len(event.rows), sum(event.size_bytes)) == (2, 5001, MAX_PARTITIONS + 7)
    assert (event.largest, event.median_bytes) == ((MAX_PARTITIONS, 7), 1)


def test_a_worker_that_is_half_as_fast_is_named() -> None:
    tasks = [
        attempt(0, 10 * number + task, seconds, f"worker{number}")
        for number, seconds in enumerate((1.0, 2.0, 1.0, 1.1))
        for task in range(3)
    ]
    (found,) = findings(stage(0, "map", 12), *tasks)
    assert found.kind == "slow_worker"
    assert found.message == "worker1 was 0.5 times as fast as other workers in map"
    assert found.setting == "cluster.workers"


@pytest.mark.parametrize(("seconds", "tasks"), [(0.1, 3), (2.0, 2)])
def test_a_worker_is_not_judged_by_little_work(seconds: float, tasks: int) -> None:
    short = [attempt(0, task, seconds, "worker0") for task in range(tasks)]
    long = [attempt(0, 10 + task, 4 * seconds, "worker1") for task in range(tasks)]
    assert findings(stage(0, "map", 9), *short, *long) == ()


def test_a_stage_that_spilled_is_named_whoever_spilled() -> None:
    use = ServersSampled(servers=(ServerUse("data0", spilled_bytes=3 * MIB),))
    spilling = attempt(0, 0, 1.0, spilled_bytes=2 * MIB)
    (found,) = findings(stage(0, "map", 1), use, spilling)
    assert found.message == "map spilled 5.0 MiB to disk"
    assert found.setting == "cluster.memory"
    assert found.advice == (
        "a larger cluster.memory, which is 1.0 GiB now, would keep it in memory"
    )
