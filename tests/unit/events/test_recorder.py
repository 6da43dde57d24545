"""Tests of the recorder: what it keeps, bins, shows and writes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mrflight.errors import InputError
from mrflight.events import bins
from mrflight.events.history import HistoryWriter, read_history, read_view
from mrflight.events.job_view import JobView, encode_view, fold
from mrflight.events.kinds import (
    AnyEvent,
    AttemptEnded,
    AttemptsBinned,
    Incident,
    JobBegan,
    JobEnded,
    StageBegan,
    StageEnded,
)
from mrflight.events.recorder import RING_EVENTS, News, Recorder
from mrflight.result import JobResult
from mrflight.system.closeable import Closeable
from tests.support.commands.threads import await_thread
from tests.support.jobs.recorded_progress import RecordedProgress
from tests.support.suite.messages import refused

BEGAN = JobBegan(job_id="j", name="job", version="1", host="here", pid=1)


def stage(
    number: int = 0, tasks: int = 1, name: str = "map", *, within: bool = False
) -> StageBegan:
    return StageBegan(stage=number, name=name, tasks=tasks, within=within)


def view_of(recorder: Recorder) -> bytes:
    return recorder.read(encode_view)


def test_the_state_is_that_of_the_history(tmp_path: Path) -> None:
    path = tmp_path / "job.jsonl"
    with Recorder(max_attempts=3) as recorder:
        recorder.record(BEGAN)
        recorder.write_to(path)
        recorder.record(stage(tasks=10))
        for task in range(10):
            worker = f"worker{task % 2}"
            recorder.record(
                AttemptEnded(stage=0, task=task, worker=worker, seconds=0.5, sent={"data0": task})
            )
        recorder.record(StageEnded(stage=0, note="all done"))
    assert view_of(recorder) == encode_view(read_view(path))
    view = read_view(path)
    assert (view.stages[0].done, view.binned, len(view.spans)) == (10, 7, 5)
    assert sum(view.spans.count) == 10
    assert view.stages[0].sent_bytes == sum(range(10))
    binned = [event for event in read_history(path) if isinstance(event, AttemptsBinned)]
    assert [(each.worker, each.count, each.tasks) for each in binned] == [
        ("worker1", 4, 4),
        ("worker0", 3, 3),
    ]


def test_bins_are_recorded_less_often_in_a_job_without_an_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bins, "_COARSER_EVERY", 10)
    recorder = Recorder(max_attempts=0)
    recorder.record(stage(tasks=10_000))
    for at in range(2_000):
        recorder.record(AttemptEnded(at=float(at), stage=0, task=at, seconds=0.1))
    recorder.close()
    spans = recorder.read(lambda view: list(view.spans.count))
    assert sum(spans) == 2_000
    assert len(spans) < 100
    assert spans == sorted(spans[:-1]) + spans[-1:]


def test_what_follows_the_stream_is_closed_after_the_last_event() -> None:
    seen: list[bool] = []
    recorder = Recorder()

    class Follower(Closeable):
        def close(self) -> None:
            seen.append(recorder.read(lambda view: view.ended_at is not None))

    recorder.closes_with(Follower())
    with recorder:
        recorder.record(BEGAN)
        recorder.record(JobEnded(result=JobResult("j", "committed")))
    assert seen == [True]


def test_bins_are_recorded_every_second_and_at_the_end() -> None:
    recorder = Recorder(max_attempts=0)
    recorder.record(stage(tasks=3))
    for at in (1.0, 1.9, 2.0, 2.5):
        recorder.record(AttemptEnded(at=at, stage=0, task=0, seconds=0.1))
    assert recorder.read(lambda view: view.binned) == 3
    recorder.close()
    assert recorder.read(lambda view: view.binned) == 4


def test_who_follows_gets_a_snapshot_and_then_what_comes() -> None:
    recorder = Recorder()
    recorder.record(BEGAN)
    _, position = recorder.snapshot()
    assert recorder.news(position) == News([], 1, 0)
    recorder.record(event := stage())
    assert recorder.news(position) == News([event], 2, 0)
    assert recorder.news(0) == News([BEGAN, event], 2, 0)


def test_who_is_too_slow_is_told_what_it_missed() -> None:
    recorder = Recorder()
    for number in range(RING_EVENTS + 10):
        recorder.record(Incident(kind="notice", message=str(number)))
    news = recorder.news(4)
    assert (len(news.events), news.next, news.missed) == (RING_EVENTS, RING_EVENTS + 10, 6)


def test_a_follower_waits_for_an_event_or_for_the_end() -> None:
    recorder = Recorder()
    got: list[object] = []
    for end in (lambda: recorder.record(BEGAN), recorder.close):
        position = recorder.snapshot()[1]
        follower = threading.Thread(
            target=lambda p=position: got.append(recorder.news(p, 86_400.0))
        )
        follower.start()
        end()
        await_thread(follower)
    assert got == [News([BEGAN], 1, 0), News([], 1, 0)]


def test_progress_shows_stages_tasks_and_incidents() -> None:
    progress = RecordedProgress()
    recorder = Recorder(progress)
    recorder.record(stage(0, 2))
    recorder.record(StageBegan(stage=1, name="map", tasks=7, within=True))
    for number, outcome, again in ((0, "done", False), (0, "failed", False), (0, "done", True)):
        recorder.record(AttemptEnded(stage=number, task=0, outcome=outcome, again=again))
    recorder.record(AttemptEnded(stage=1, task=0))
    recorder.record(StageEnded(stage=1, note="hidden"))
    recorder.notice("server_lost", "data0 is gone")
    recorder.record(StageEnded(stage=0, note="shown"))
    recorder.record(stage(2, name="reduce"))
    recorder.record(StageEnded(stage=2, failed=True))
    assert progress.begun == [("map", 2), ("reduce", 1)]
    assert (progress.done, progress.notes, progress.lines) == (1, ["shown"], ["data0 is gone"])


@pytest.fixture
def lines(tmp_path: Path) -> list[bytes]:
    """Return the lines of a history."""
    with Recorder() as recorder:
        recorder.record(BEGAN)
        recorder.record(stage())
        recorder.write_to(tmp_path / "whole.jsonl")
        recorder.record(AttemptEnded(stage=0, task=0))
    return (tmp_path / "whole.jsonl").read_bytes().splitlines(keepends=True)


def test_a_history_begins_with_what_was_recorded_before_it(lines: list[bytes]) -> None:
    assert len(lines) == 3


def test_a_last_line_that_is_torn_is_left_out(lines: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "torn.jsonl"
    for cut in range(1, len(lines[-1])):
        path.write_bytes(b"".join(lines)[:-cut])
        view = read_view(path)
        assert view.stages[0].done == (cut == 1)  # without the newline it is whole


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b'{"event":"stage_began","stage":0,"name":"map","tasks":1}\n',
        b"rows\n",
        b"BEGAN{}\n",
        b'BEGAN{"event":"stage_ended","stage":4}\n',
        b'BEGAN{"event":"stage_ended","stage":[]}\n',
        b"BEGAN" + b"[" * 5000 + b"\n",
        b"BEGAN\xff\xfe\n",
    ],
)
def test_what_is_no_history_is_refused(text: bytes, lines: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_bytes(text.replace(b"BEGAN", lines[0]))
    with refused(InputError):
        read_view(path)


def test_a_missing_history_is_an_error_of_the_input(tmp_path: Path) -> None:
    with refused(InputError):
        read_view(tmp_path / "none.jsonl")


def test_what_a_later_version_adds_is_left_out(lines: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "later.jsonl"
    unknown = b'{"event":"volcano","at":3.0,"lava":1}\n'
    known = b'{"event":"server_left","at":3.0,"location":"x","cause":"y","hue":1}\n'
    path.write_bytes(lines[0] + unknown + known)
    assert [type(event).__name__ for event in read_history(path)] == ["JobBegan", "ServerLeft"]


def test_a_full_disk_ends_the_history_and_not_the_job(caplog: pytest.LogCaptureFixture) -> None:
    writer = HistoryWriter(open("/dev/full", "wb"))  # noqa: SIM115 - the writer closes it
    for _ in range(3):
        writer.write(BEGAN)
    writer.close()
    assert [record.message for record in caplog.records] == [
        "the history /dev/full ends here, as it cannot be written: "
        "[Errno 28] No space left on device"
    ]


def test_a_history_cannot_begin_late() -> None:
    recorder = Recorder()
    for number in range(RING_EVENTS + 1):
        recorder.record(Incident(kind="notice", message=str(number)))
    with pytest.raises(ValueError, match="first event"):
        recorder.write_to(Path("unused.jsonl"))


def test_events_fold_to_the_same_whoever_folds_them() -> None:
    events: list[AnyEvent] = [BEGAN, stage(), AttemptEnded(stage=0, task=0), StageEnded(stage=0)]
    live = JobView()
    for event in events:
        live.add(event)
    assert encode_view(live) == encode_view(fold(events))
