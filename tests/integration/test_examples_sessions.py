"""``examples/sessions``: its data and its own code."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.commands.experiments import SESSIONS, contents, load, python


class TestSessions:
    """``examples/sessions``."""

    def test_logs_are_exact_and_the_same_again(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            options = ("--events=3001", "--users=40", "--files=3", "--out", tmp_path / name)
            python(SESSIONS / "generate.py", *options)
        made = contents(tmp_path / "a")
        assert made == contents(tmp_path / "b")
        lines = [line for path in (tmp_path / "a").glob("*.ndjson") for line in path.open()]
        events = [json.loads(line) for line in lines]
        assert len(events) == 3001
        assert 30 < len({event["user"] for event in events if event["user"]}) <= 40

    def test_cuts_as_a_loop_would(self, tmp_path: Path) -> None:
        generate, sessions = load(SESSIONS / "generate.py"), load(SESSIONS / "sessions.py")
        paths = generate.write(generate.Logs(events=3000, users=20, files=2), tmp_path)
        batches = []
        for path in paths:
            events = [json.loads(line) for line in path.read_text().splitlines()]
            batches.append(sessions.page_views(pa.RecordBatch.from_pylist(events)))
        views = pa.Table.from_batches(batches)
        assert views.num_rows > 1000
        assert sessions.sessions(views).to_pylist() == cut(views.to_pylist())

    @pytest.mark.parametrize(("pause_s", "count"), [(1799, 1), (1800, 2)])
    def test_a_pause_of_half_an_hour_ends_a_session(self, pause_s: int, count: int) -> None:
        start = dt.datetime(2026, 3, 2, tzinfo=dt.UTC)
        times = [start, start + dt.timedelta(seconds=pause_s)]
        views = pa.table({"user": ["u", "u"], "time": times, "page": ["/", "/cart"]})
        assert load(SESSIONS / "sessions.py").sessions(views).num_rows == count

    def test_no_views_no_sessions(self) -> None:
        sessions = load(SESSIONS / "sessions.py").sessions
        start = dt.datetime(2026, 3, 2, tzinfo=dt.UTC)
        views = pa.table({"user": ["u"], "time": [start], "page": ["/"]})
        none = sessions(views.slice(0, 0))
        assert none.num_rows == 0
        assert none.schema == sessions(views).schema

    def test_leaves_out_what_is_no_page_view(self) -> None:
        lines = [
            ("u1", "GET /cart?item=3 HTTP/1.1", 200),
            ("u1", "GET /cart HTTP/1.1", 404),
            ("u1", "GET /static/style.css HTTP/1.1", 200),
            (None, "GET /cart HTTP/1.1", 200),
            ("u1", "-", 200),
        ]
        user, request, status = (list(column) for column in zip(*lines, strict=True))
        time = ["2026-03-02T08:00:00.5Z"] * len(lines)
        batch = {"time": time, "user": user, "request": request, "status": status}
        views = load(SESSIONS / "sessions.py").page_views(pa.RecordBatch.from_pydict(batch))
        assert views.column("page").to_pylist() == ["/cart"]


def cut(views: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compute the sessions one view at a time, as a reference for `sessions`."""
    made: list[dict[str, Any]] = []
    for view in sorted(views, key=lambda view: (view["user"], view["time"], view["page"])):
        last = made[-1] if made and made[-1]["user"] == view["user"] else None
        if last and view["time"] - last["end"] < dt.timedelta(minutes=30):
            last |= {"end": view["time"], "views": last["views"] + 1, "last_page": view["page"]}
        else:
            made.append(
                {
                    "user": view["user"],
                    "session": last["session"] + 1 if last else 1,
                    "start": view["time"],
                    "end": view["time"],
                    "views": 1,
                    "first_page": view["page"],
                    "last_page": view["page"],
                }
            )
    return made
