"""The stream of a page: all there is, then what comes, and an end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from mrflight.events.recorder import Recorder
from mrflight.page import messages as stream
from mrflight.page.job_page import LiveJob
from mrflight.page.messages import messages
from tests.support.jobs.synthetic_job import SyntheticJob


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_PACE_S", 0.0)
    monkeypatch.setattr(stream, "IDLE_S", 0.05)


def parsed(parts: Iterator[bytes]) -> Iterator[tuple[str, Any]]:
    for part in parts:
        first, second, *rest = part.decode().split("\n")
        assert rest == ["", ""]
        yield first.removeprefix("event: "), msgspec.json.decode(second.removeprefix("data: "))


def test_a_page_that_comes_late_is_sent_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_ATTEMPTS", 100)
    with Recorder() as recorder:
        for event in SyntheticJob().events():
            recorder.record(event)
        found = list(parsed(messages(LiveJob(recorder), threading.Event())))
    kinds = [kind for kind, _ in found]
    chunks = [data for kind, data in found if kind == "attempts"]
    assert [chunk["since"] for chunk in chunks] == [0, 100, 200, 300]
    assert sum(chunk["count"] for chunk in chunks) == 340
    assert kinds[-2:] == ["state", "end"]
    assert set(kinds[4:-2]) == {"findings", "processes", "incidents", "shuffles", "matrix"}
    assert found[-2][1]["state"] == "committed"


def test_a_page_is_sent_what_comes_and_then_the_end() -> None:
    events = list(SyntheticJob().events())
    with Recorder() as recorder:
        found = parsed(messages(LiveJob(recorder), threading.Event()))
        assert not [data["title"] for kind, data in _until_state(found) if kind == "attempts"]
        count = 0
        for event in events:
            recorder.record(event)
        seen = list(found)
        for kind, data in seen:
            count += data["count"] if kind == "attempts" else 0
        assert count == 340
        assert seen[-1][0] == "end"


def _until_state(found: Iterator[tuple[str, Any]]) -> list[tuple[str, Any]]:
    taken = []
    for each in found:
        taken.append(each)
        if each[0] == "state":
            return taken
    raise AssertionError("no state was sent")


def test_parts_are_sent_again_only_if_they_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "SHARE", 1e9)
    with Recorder() as recorder:
        events = [e for e in SyntheticJob().events() if type(e).__name__ != "JobEnded"]
        for event in events:
            recorder.record(event)
        found = parsed(messages(LiveJob(recorder), threading.Event()))
        first, second = _until_state(found), _until_state(found)
    assert {kind for kind, _ in first} > {"matrix", "shuffles"}
    assert [kind for kind, _ in second] == ["state"]


def test_a_stream_ends_with_the_page_though_the_job_does_not() -> None:
    closing = threading.Event()
    with Recorder() as recorder:
        recorder.record(next(SyntheticJob().events()))
        found = parsed(messages(LiveJob(recorder), closing))
        _until_state(found)
        closing.set()
        kinds = [kind for kind, _ in found]
    assert kinds[-1] == "state"
    assert "end" not in kinds  # so that the page says that nobody answers, and asks again
