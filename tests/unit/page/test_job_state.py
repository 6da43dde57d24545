"""What a page shows of a job, made from its events."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import Any

import pytest

from mrflight.events.history import HistoryWriter, read_view
from mrflight.events.job_view import JobView, fold
from mrflight.events.kinds import (
    OUTCOMES,
    AnyEvent,
    AttemptEnded,
    AttemptRunning,
    Incident,
    PartitionsWritten,
    StageBegan,
)
from mrflight.events.recorder import Recorder
from mrflight.page.contract import AttemptColumns
from mrflight.page.job_page import EndedJob, LiveJob
from mrflight.page.job_state import MAX_BARS, natural
from tests.support.jobs.synthetic_job import BEGAN_AT, SyntheticJob

TYPES = {
    "worker": "H",
    "stage": "I",
    "task": "I",
    "number": "H",
    "outcome": "B",
    "speculative": "B",
    "start": "d",
    "seconds": "f",
    "attempts": "I",
    "busy": "f",
}


def columns(chunk: AttemptColumns) -> dict[str, list[Any]]:
    """The columns as the scripts of the page decode them."""
    found = {}
    for name, code in TYPES.items():
        numbers = array(code)
        numbers.frombytes(getattr(chunk, name))
        assert len(numbers) == chunk.count
        found[name] = numbers.tolist()
    return found


@pytest.fixture(scope="module")
def events() -> list[AnyEvent]:
    return list(SyntheticJob().events())


@pytest.fixture(scope="module")
def view(events: list[AnyEvent]) -> JobView:
    return fold(events)


def test_an_ended_job_shows_the_numbers_of_its_result(view: JobView) -> None:
    state, result = EndedJob(view).state(), view.result
    assert result is not None
    assert (state.title, state.state, state.error) == ("clicks by url", "committed", "")
    figures = state.figures
    for name in ("rows_in", "rows_out", "bytes_shuffled", "partitions", "peak_memory_bytes"):
        assert figures[name] == getattr(result, name)
    assert figures["attempts"] == {
        name: getattr(result.attempts, name) for name in ("map", "reduce", "failed")
    }
    by_name = {stage.name: stage for stage in state.stages}
    assert by_name["map"].rows == result.rows_in
    assert sum(stage.failed for stage in state.stages) == result.attempts.failed
    assert [(stage.done, stage.tasks) for stage in state.stages] == [(240, 240), (96, 96)]
    assert state.attempts_ended == result.attempts.map + result.attempts.reduce


def test_every_attempt_has_its_place(events: list[AnyEvent], view: JobView) -> None:
    ended = [event for event in events if isinstance(event, AttemptEnded)]
    job = EndedJob(view)
    workers = job.state().workers
    shown = columns(job.attempts(0, 10**6))
    for position, event in enumerate(ended):
        assert workers[shown["worker"][position]] == event.worker
        assert shown["stage"][position] == event.stage
        assert (shown["task"][position], shown["number"][position]) == (event.task, event.attempt)
        assert OUTCOMES[shown["outcome"][position]] == event.outcome
        assert shown["speculative"][position] == event.speculative
        assert shown["start"][position] == pytest.approx(event.at - event.seconds, abs=1e-3)
        assert shown["seconds"][position] == pytest.approx(event.seconds, rel=1e-5)
    assert set(shown["attempts"]) == {1}


def test_attempts_come_in_pieces_from_where_a_page_is(view: JobView) -> None:
    job = EndedJob(view)
    whole, found, since = columns(job.attempts(0, 10**6)), [], 0
    while (piece := job.attempts(since, 50)).count:
        assert piece.since == since
        found += columns(piece)["task"]
        since += piece.count
    assert found == whole["task"]


def test_attempts_that_are_binned_are_shown_by_how_busy_they_kept_their_workers() -> None:
    with Recorder(max_attempts=100) as recorder:
        for event in SyntheticJob(maps=900, reduces=100, task_s=0.1).events():
            recorder.record(event)
        job = LiveJob(recorder)
        state, shown = job.state(), columns(job.attempts(0, 10**6))
        busy = recorder.read(lambda view: {n: w.seconds for n, w in view.workers.items()})
    assert state.attempts_ended == sum(shown["attempts"]) > 1000
    assert len(shown["attempts"]) < 600
    seconds: Counter[str] = Counter()
    for worker, took in zip(shown["worker"], shown["busy"], strict=True):
        seconds[state.workers[worker]] += took
    assert dict(seconds) == pytest.approx(busy, rel=1e-3)
    for took, span, count in zip(shown["busy"], shown["seconds"], shown["attempts"], strict=True):
        assert count == 1 or took <= span * 1.01 + 1.5  # a worker has one task at a time


def test_a_job_that_runs_shows_what_is_known_so_far() -> None:
    recorder = Recorder()
    job = LiveJob(recorder)
    recorder.record(next(SyntheticJob().events()))
    recorder.record(StageBegan(at=BEGAN_AT + 1, stage=0, name="map", tasks=4, at_once=2))
    ended = AttemptEnded(at=BEGAN_AT + 2, stage=0, task=0, worker="worker1", seconds=1.0, rows=7)
    recorder.record(ended)
    running = AttemptRunning(at=BEGAN_AT + 2.5, stage=0, task=1, name="map 1", worker="worker0")
    recorder.record(running)
    state = job.state()
    assert (state.state, state.ended, state.workers) == ("running", None, ["worker1", "worker0"])
    assert state.figures["rows_in"] == 7
    assert state.figures["attempts"] == {"map": 2, "reduce": 0, "failed": 0}
    assert [(s.done, s.running, s.tasks, s.ended) for s in state.stages] == [(1, 1, 4, None)]
    assert [(r.worker, r.start) for r in state.running] == [(1, 2.5)]
    assert not job.is_over
    recorder.close()


def test_rows_that_are_read_again_count_once() -> None:
    view = JobView()
    view.add(StageBegan(stage=0, name="map", tasks=1))
    for number in range(3):
        again = number > 0
        view.add(AttemptEnded(stage=0, task=0, attempt=number, worker="w", rows=7, again=again))
    view.add(StageBegan(stage=1, name="map", tasks=1, within=True))
    view.add(AttemptEnded(stage=1, task=0, attempt=3, worker="w", rows=7, again=True))
    state = EndedJob(view).state()
    assert state.figures["rows_in"] == 7
    assert state.figures["attempts"]["map"] == 4
    assert [(stage.rows, stage.retried) for stage in state.stages] == [(7, 2), (0, 1)]


@pytest.mark.parametrize(
    ("incident", "what"),
    [
        (
            Incident(
                kind="server_lost",
                message="data1 was killed; data3 takes its place",
                subject="data1",
                cause="was killed",
                action="data3 takes its place",
            ),
            "data1 was killed",
        ),
        (
            Incident(
                kind="moved",
                message="map 1 runs again: it moved",
                subject="map 1",
                cause="it moved",
                action="it runs again",
            ),
            "map 1: it moved",
        ),
        (Incident(kind="notice", message="something else"), "something else"),
    ],
)
def test_an_incident_is_what_happened_and_then_what_was_done(incident: Incident, what: str) -> None:
    view = JobView()
    view.add(incident)
    [row] = EndedJob(view).parts().incidents
    assert (row.what, row.done) == (what, incident.action)


def test_a_history_that_is_cut_off_says_so(events: list[AnyEvent]) -> None:
    view = fold(events[: len(events) // 2])
    state = EndedJob(view).state()
    assert (state.state, state.ended) == ("cut off", round(view.last_at - events[0].at, 3))
    assert "its driver was killed" in state.error


def test_partitions_share_bars_where_there_are_more_than_can_be_seen() -> None:
    count = 3 * MAX_BARS - 1
    written = PartitionsWritten(
        stage=0,
        shuffle="s",
        rows=[1] * count,
        size_bytes=list(range(count)),
        largest=(count - 1, count - 1),
        median_bytes=count // 2,
    )
    view = JobView()
    view.add(StageBegan(stage=0, name="map", tasks=1))
    view.add(written)
    [shuffle] = EndedJob(view).parts().shuffles
    assert len(shuffle.bytes) == len(shuffle.rows) == MAX_BARS
    assert (shuffle.width, shuffle.partitions) == (3, count)
    assert sum(shuffle.bytes) == sum(range(count))
    assert sum(shuffle.rows) == count
    assert shuffle.largest == (count - 1, count - 1)


def test_the_matrix_has_all_bytes_between_workers_and_servers(view: JobView) -> None:
    matrix = EndedJob(view).parts().matrix
    assert matrix.workers == [f"worker{number}" for number in range(12)]  # and 10 after 9
    assert matrix.servers == ["data0", "data1", "data2"]
    for table, traffic in ((matrix.sent, view.sent), (matrix.fetched, view.fetched)):
        for worker, row in zip(matrix.workers, table, strict=True):
            assert dict(zip(matrix.servers, row, strict=True)) == traffic[worker]
    stages = EndedJob(view).state().stages
    assert sum(map(sum, matrix.sent)) == view.stages[0].sent_bytes
    assert stages[0].spilled >= 0


def test_processes_show_what_they_hold_of_what_they_may(view: JobView) -> None:
    rows = {row.name: row for row in EndedJob(view).parts().processes}
    assert set(rows) == {"driver", "metadata", *view.servers, *view.workers}
    data = rows["data0"]
    assert (data.budget, data.held) == (512 * 2**20, view.servers["data0"].last.held_bytes)
    assert data.spilled == view.servers["data0"].spilled_bytes > 0
    assert data.memory == view.processes["data0"].memory_bytes <= data.peak
    assert rows["worker3"].budget == 0
    assert not any(row.gone for row in rows.values())


def test_names_are_ordered_as_people_count() -> None:
    names = ["worker10", "worker9", "a", "worker1", "node2:9", "node2:10"]
    assert sorted(names, key=natural) == [
        "a",
        "node2:9",
        "node2:10",
        "worker1",
        "worker9",
        "worker10",
    ]


def test_the_page_of_a_history_is_that_of_the_job(
    events: list[AnyEvent], view: JobView, tmp_path: Any
) -> None:
    path = tmp_path / "job.jsonl"
    with HistoryWriter.create(path) as history:
        for event in events:
            history.write(event)
    read = EndedJob(read_view(path))
    assert read.state() == EndedJob(view).state()
    assert read.parts() == EndedJob(view).parts()
    assert read.attempts(0, 10**6) == EndedJob(view).attempts(0, 10**6)
