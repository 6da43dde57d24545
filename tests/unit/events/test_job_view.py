"""Tests of the state that is folded from events."""

from __future__ import annotations

import msgspec
import pytest

from mrflight.events.durations import Durations, bucket_of, middle_of
from mrflight.events.job_view import MAX_INCIDENTS, encode_view, fold
from mrflight.events.kinds import (
    AnyEvent,
    AttemptEnded,
    AttemptRunning,
    Incident,
    JobBegan,
    JobEnded,
    PartitionsWritten,
    ProcessesSampled,
    ProcessMemory,
    ServersSampled,
    ServerUse,
    StageBegan,
    StageEnded,
)
from mrflight.result import JobResult

MARKUP = "<img src=x onerror=alert(1)>"
BEGAN = JobBegan(at=10.0, job_id="j", name=MARKUP, version="1", host="here", pid=1)
MAPS = StageBegan(at=11.0, stage=0, name="map", tasks=3, size_bytes=300, at_once=2)


def attempt(task: int, seconds: float = 1.0, **fields: object) -> AttemptEnded:
    given: dict[str, object] = {"at": 12.0 + task, "stage": 0, "rows": 10, "size_bytes": 100}
    return msgspec.convert({**given, "task": task, "seconds": seconds, **fields}, AttemptEnded)


def test_a_stage_knows_how_far_it_is_and_what_it_took() -> None:
    events: list[AnyEvent] = [
        BEGAN,
        MAPS,
        AttemptRunning(stage=0, task=2, name="map 2", worker="worker1"),
        attempt(0, 1.0, worker="worker0", sent={"data0": 5, "data1": 6}, spilled_bytes=3),
        attempt(1, 4.0, worker="worker0", outcome="failed", error="no"),
        attempt(1, 3.0, worker="worker1", attempt=1, sent={"data0": 7}),
    ]
    view = fold(events)
    stage = view.stages[0]
    assert (stage.done, stage.rows, stage.done_bytes) == (2, 20, 200)
    assert stage.outcomes == {"done": 2, "failed": 1}
    assert (stage.retried, stage.spilled_bytes, stage.sent_bytes) == (1, 3, 18)
    assert (stage.durations.median(), stage.durations.longest) == (2.0, 3.0)
    assert stage.fraction == pytest.approx(2 / 3)
    assert stage.left_s(14.0) is not None
    assert list(stage.running) == [2]
    assert view.current is stage
    assert view.sent == {"worker0": {"data0": 5, "data1": 6}, "worker1": {"data0": 7}}
    assert stage.slowest[0].task == 1
    view.add(StageEnded(at=15.0, stage=0, note="done"))
    assert (stage.seconds, stage.running, view.current) == (4.0, {}, None)
    assert stage.left_s(16.0) is None


def test_a_task_whose_output_was_lost_counts_once() -> None:
    stage = fold([BEGAN, MAPS, attempt(0), attempt(0, attempt=1, again=True)]).stages[0]
    assert (stage.done, stage.outcomes, stage.retried) == (1, {"done": 2}, 1)


def test_a_stage_within_another_one_is_not_the_current_one() -> None:
    repair = StageBegan(stage=1, name="map", tasks=1, within=True)
    view = fold([BEGAN, MAPS, repair])
    assert view.current is view.stages[0]


def test_what_servers_spill_belongs_to_the_stage_that_runs() -> None:
    def sample(spilled: int) -> ServersSampled:
        use = ServerUse("data0", held_bytes=9 - spilled, spilled_bytes=spilled)
        return ServersSampled(servers=(use,))

    view = fold([BEGAN, MAPS, sample(2), sample(5), StageEnded(stage=0), sample(1), sample(2)])
    assert view.stages[0].spilled_bytes == 5
    server = view.servers["data0"]
    assert (server.spilled_bytes, server.peak_held_bytes) == (6, 8)


def test_a_process_is_known_with_the_most_that_it_held() -> None:
    sizes = (5, 7, 6)
    samples = (ProcessesSampled(processes=(ProcessMemory("driver", 1, each),)) for each in sizes)
    process = fold([BEGAN, *samples]).processes["driver"]
    assert (process.memory_bytes, process.peak_memory_bytes) == (6, 7)


def test_other_jobs_on_a_standing_cluster_have_spilled_before() -> None:
    began = msgspec.structs.replace(BEGAN, cluster="grpc+tcp://h:1")
    use = ServerUse("data0", spilled_bytes=7)
    view = fold([began, MAPS, ServersSampled(servers=(use,))])
    assert view.stages[0].spilled_bytes == 0


def test_incidents_beyond_a_thousand_are_counted() -> None:
    incidents = [Incident(kind="notice", message=str(i)) for i in range(MAX_INCIDENTS + 5)]
    view = fold([BEGAN, *incidents])
    assert len(view.incidents) == MAX_INCIDENTS
    assert view.incident_counts == {"notice": MAX_INCIDENTS + 5}


def test_the_end_of_a_job_ends_what_ran() -> None:
    result = JobResult("j", "interrupted", error="stopped")
    running = AttemptRunning(stage=0, task=0, name="map 0")
    view = fold([BEGAN, MAPS, running, JobEnded(at=20.0, result=result)])
    assert (view.state, view.result, view.ended_at) == ("interrupted", result, 20.0)
    assert view.stages[0].running == {}


def test_a_view_is_json_with_spans_in_columns_and_names_as_text() -> None:
    partitions = PartitionsWritten(stage=0, shuffle="s", rows=[1, 2], size_bytes=[3, 4])
    decoded = msgspec.json.decode(
        encode_view(fold([BEGAN, MAPS, attempt(1, 0.5, worker="worker0"), partitions]))
    )
    assert decoded["began"]["name"] == MARKUP
    assert decoded["spans"] == {
        "workers": ["worker0"],
        "outcomes": ["done", "failed", "stopped", "lost"],
        "stage": [0],
        "task": [1],
        "attempt": [0],
        "worker": [0],
        "outcome": [0],
        "speculative": [0],
        "began": [12.5],
        "seconds": [0.5],
        "count": [1],
        "busy": [0.5],
    }
    stage = decoded["stages"]["0"]
    assert stage["durations"] == {"count": 1, "total": 0.5, "median": 0.5, "longest": 0.5}
    assert stage["partitions"]["size_bytes"] == [3, 4]


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 0.001, 0.0123, 1.0, 3600.0])
def test_a_time_is_near_the_middle_of_its_bucket(seconds: float) -> None:
    assert middle_of(bucket_of(seconds)) == pytest.approx(max(seconds, 1e-6), rel=0.1)


def test_the_median_is_exact_until_times_are_in_buckets() -> None:
    durations = Durations()
    assert durations.median() == 0.0
    for seconds in (4.0, 1.0, 2.0):
        durations.add(seconds)
    assert durations.median() == 2.0
    durations.add(3.0)
    assert durations.median() == 2.5
    durations.add_buckets([(bucket_of(10.0), 6)], 60.0, 11.0)
    assert durations.median() == pytest.approx(10.0, rel=0.1)
    assert (len(durations), durations.longest, durations.total) == (10, 11.0, 70.0)
