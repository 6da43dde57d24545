"""Tests of how attempts are counted by reason."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mrflight.events.kinds import AnyEvent, AttemptEnded, JobBegan, Outcome, StageBegan
from mrflight.result import Attempts
from tests.support.faults.attempt_log import EVENTS, AttemptLog


def log_of(folder: Path, *events: AnyEvent) -> AttemptLog:
    (folder / EVENTS).mkdir()
    began = JobBegan(job_id="job", name="", version="", host="", pid=1)
    lines = b"\n".join(map(msgspec.json.encode, (began, *events)))
    (folder / EVENTS / "job.jsonl").write_bytes(lines + b"\n")
    return AttemptLog(folder, "job")


def ended(stage: int, name: str, outcome: Outcome = "done", *, twin: bool = False) -> AttemptEnded:
    task = int(name[-1])
    return AttemptEnded(stage=stage, task=task, name=name, outcome=outcome, speculative=twin)


def test_each_attempt_has_a_reason(tmp_path: Path) -> None:
    log = log_of(
        tmp_path,
        StageBegan(stage=0, name="map", tasks=3),
        ended(0, "map 0"),
        ended(0, "map 1", "failed"),
        ended(0, "map 1"),
        ended(0, "map 2", "lost"),
        ended(0, "map 2", "stopped"),
        ended(0, "map 2"),
        StageBegan(stage=1, name="reduce", tasks=2),
        StageBegan(stage=2, name="map", tasks=1, within=True),
        ended(2, "map 0"),
        ended(1, "reduce 0", twin=True),
        ended(1, "reduce 0", "stopped"),
        StageBegan(stage=3, name="commit", tasks=1),
        ended(3, "commit 0"),
    )
    assert log.reasons() == {
        "map done": 3,
        "map failed": 1,
        "map moved": 2,
        "map again": 1,
        "reduce done": 1,
        "reduce overtaken": 1,
    }
    assert log.total() == Attempts(7, 2, 1)
    assert log.is_done("map 2")
    assert not log.is_done("reduce 1")


def test_a_job_without_a_history_has_no_attempts(tmp_path: Path) -> None:
    assert AttemptLog(tmp_path).reasons() == {}
