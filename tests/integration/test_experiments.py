"""The examples' own code, and every experiment once, as small as it goes."""

from __future__ import annotations

import datetime as dt
import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

ROOT = Path(__file__).parents[2]
CLICKS = ROOT / "examples" / "clicks"
SESSIONS = ROOT / "examples" / "sessions"


def load(path: Path) -> ModuleType:
    """The module in a file that no package holds."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def python(*words: object, timeout_s: float = 120.0) -> str:
    """What ``python words`` prints; fails with all it said unless it exits with 0."""
    command = [sys.executable, *map(str, words)]
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=timeout_s
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class TestClicks:
    """``examples/clicks``."""

    @pytest.mark.parametrize(("keys", "sites"), [("unique", 5003), ("37", 37)])
    def test_has_exactly_the_rows_and_keys(self, tmp_path: Path, keys: str, sites: int) -> None:
        python(
            CLICKS / "generate.py", "--rows=5003", "--files=4", f"--keys={keys}", "--out", tmp_path
        )
        files = sorted(tmp_path.glob("*.csv"))
        visits = pa.concat_tables([pacsv.read_csv(path) for path in files])
        per_site = Counter(visits["url"].to_pylist())
        assert (len(files), visits.num_rows, len(per_site)) == (4, 5003, sites)
        assert max(per_site.values()) - min(per_site.values()) <= 1
        assert {len(url) for url in per_site} == {18}
        assert set(visits["visitor"].to_pylist()) == {"User", "Robot"}

    def test_unique_keys_are_in_random_order(self) -> None:
        generate = load(CLICKS / "generate.py")
        rows = 10_000
        numbers = generate.np.arange(rows, dtype=generate.np.uint64)
        mixed = generate.permute(numbers, rows, 5).astype(int)
        assert sorted(mixed) == list(range(rows))
        ascents = (mixed[1:] > mixed[:-1]).mean()
        assert 0.45 < ascents < 0.55

    def test_sorted_keys_have_a_file_each(self, tmp_path: Path) -> None:
        visits = load(CLICKS / "generate.py").Visits(rows=90, files=3, keys=3, order="sorted")
        for path in load(CLICKS / "generate.py").write(visits, tmp_path):
            assert len(set(pacsv.read_csv(path)["url"].to_pylist())) == 1

    def test_the_same_bytes_however_it_is_batched(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        generate = load(CLICKS / "generate.py")
        visits = generate.Visits(rows=3000, files=2, keys=50, seed=3)
        generate.write(visits, tmp_path / "a")
        monkeypatch.setattr(generate, "_BATCH_ROWS", 7)
        generate.write(visits, tmp_path / "b")
        generate.write(generate.Visits(rows=3000, files=2, keys=50, seed=4), tmp_path / "c")
        assert contents(tmp_path / "a") == contents(tmp_path / "b")
        assert contents(tmp_path / "a") != contents(tmp_path / "c")

    def test_keeps_what_is_there_and_clears_what_is_not_wanted(self, tmp_path: Path) -> None:
        generate = load(CLICKS / "generate.py")
        first = generate.write(generate.Visits(rows=100, files=5, keys=10), tmp_path)
        made = first[0].stat().st_mtime_ns
        generate.write(generate.Visits(rows=100, files=5, keys=10), tmp_path)
        assert first[0].stat().st_mtime_ns == made
        generate.write(generate.Visits(rows=100, files=2, keys=10), tmp_path)
        assert len(list(tmp_path.glob("*.csv"))) == 2

    def test_a_failed_run_leaves_no_half_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        generate = load(CLICKS / "generate.py")
        visits = generate.Visits(rows=100, files=2, keys=10)

        def broken(*_: object) -> bytes:
            raise OSError("disk full")

        with monkeypatch.context() as patch:
            patch.setattr(generate, "lines", broken)
            with pytest.raises(OSError, match="disk full"):
                generate.write(visits, tmp_path)
        assert contents(tmp_path) == {}
        assert len(generate.write(visits, tmp_path)) == 2

    def test_weighs(self) -> None:
        weigh = load(CLICKS / "clicks.py").weigh
        batch = pa.record_batch({"url": ["a", "b"], "visitor": ["User", "Robot"]})
        schema = pa.schema([("url", pa.string()), ("weight", pa.int32())])
        assert weigh(batch).equals(pa.record_batch([["a", "b"], [2, 1]], schema=schema))
        assert weigh(batch.slice(0, 0)).schema == schema

    @pytest.mark.parametrize("stranger", ["Bot", "", "user", None])
    def test_names_a_visitor_that_it_does_not_know(self, stranger: str | None) -> None:
        weigh = load(CLICKS / "clicks.py").weigh
        batch = pa.record_batch({"url": ["a", "b"], "visitor": ["User", stranger]})
        with pytest.raises(ValueError, match=f"visitor {stranger!r} is neither"):
            weigh(batch)


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
    """What `sessions` does, one view at a time."""
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


@pytest.mark.parametrize("folder", [CLICKS, SESSIONS])
def test_the_jobs_of_the_examples_decode(folder: Path) -> None:
    from mrflight.job_file import load_job

    assert load_job(folder / "job.toml").job.name == folder.name


class TestPartitionCount:
    """``experiments/partition_count.py``."""

    SMALL = ("--rows=4000", "--partitions=3", "--files=2", "--repeats=1")

    def test_the_three_prototypes(self, tmp_path: Path) -> None:
        """Every result is checked within; a wrong one fails the run."""
        asked = (*self.SMALL, "--versions=plain,arrow,flight", "--out", tmp_path)
        words = ("-m", "experiments.partition_count", *asked)
        printed = python(*words)
        assert all(f"Table 4.{number}:" in printed for number in range(1, 9))
        runs = json.loads((tmp_path / "partition_count.json").read_text())["runs"]
        assert {run["cell"]["version"] for run in runs} == {"plain", "arrow", "flight"}
        assert {run["cell"]["way"] for run in runs} == {"tasks", "alone", "cores"}
        assert {tuple(run["steps"]) for run in runs} == {("map", "shuffle", "reduce")}
        assert len(list(tmp_path.glob("figure-4-?.png"))) == 6

        python(*words)  # what has been measured is not measured again
        assert json.loads((tmp_path / "partition_count.json").read_text())["runs"] == runs

    def test_mrflight(self, tmp_path: Path) -> None:
        words = ("-m", "experiments.partition_count", *self.SMALL, "--out", tmp_path)
        printed = python(*words, "--versions=mrflight", "--ways=cores")
        assert "mrflight s" in printed

    @pytest.mark.parametrize("ending", ["left", "killed"])
    def test_no_server_outlives_its_starter(self, tmp_path: Path, ending: str) -> None:
        psutil = pytest.importorskip("psutil")
        program = (
            "import os, signal, sys\n"
            "from experiments.thesis.server_process import ServerProcess\n"
            "module = 'experiments.thesis.flight_servers'\n"
            "with ServerProcess(module, 'metadata', sys.argv[1], '2') as server:\n"
            "    print(server.location(), flush=True)\n"
            "    sys.stdin.read()\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as starter:
            assert starter.stdin is not None
            assert starter.stdout is not None
            assert starter.stdout.readline().startswith("grpc+tcp://")
            servers = psutil.Process(starter.pid).children(recursive=True)
            if ending == "killed":
                starter.kill()
            starter.stdin.close()
            _, alive = psutil.wait_procs(servers, timeout=20)
        assert len(servers) == 3
        assert alive == []


class TestOracle:
    """``experiments/oracle.py`` tells a wrong result from a right one."""

    RIGHT = (("a", 3), ("b", 1))

    @pytest.mark.parametrize(
        ("rows", "fault"),
        [
            (RIGHT[::-1], None),
            ((("a", 3),), "1 sites, not 2"),
            ((("a", 3), ("a", 3)), "more than once"),
            ((("a", 3), ("c", 1)), "that no visit names"),
            ((("a", 3), ("b", 2)), "wrong number of clicks"),
        ],
    )
    def test_check(
        self,
        monkeypatch: pytest.MonkeyPatch,
        rows: tuple[tuple[str, int], ...],
        fault: str | None,
    ) -> None:
        monkeypatch.syspath_prepend(str(ROOT))
        from experiments import oracle

        if fault is None:
            oracle.check(clicks(rows), clicks(self.RIGHT), "this")
        else:
            with pytest.raises(oracle.WrongResultError, match=fault):
                oracle.check(clicks(rows), clicks(self.RIGHT), "this")


def clicks(rows: tuple[tuple[str, int], ...]) -> pa.Table:
    return pa.table({"url": [url for url, _ in rows], "clicks": [count for _, count in rows]})


@pytest.mark.parametrize("peer", ["duckdb", "polars", "datafusion"])
def test_bench(tmp_path: Path, peer: str) -> None:
    if importlib.util.find_spec(peer) is None:
        missing = f"{peer} is not installed: pip install {peer}"
        pytest.fail(missing) if os.environ.get("CI") == "true" else pytest.skip(missing)
    words = ("--rows=4000", "--files=2", "--rounds=1", "--keys=10", f"--peers={peer}")
    printed = python("-m", "experiments.bench", *words, "--out", tmp_path)
    assert f"| {peer} |" in printed
    (this,) = json.loads((tmp_path / "bench.json").read_text())["rounds"]["10"]
    assert set(this) == {"mrflight", peer}
    assert (tmp_path / "bench.md").read_text() in printed
