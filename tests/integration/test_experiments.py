"""The examples' own code, and every experiment once, as small as it goes."""

from __future__ import annotations

import datetime as dt
import importlib.util
import json
import os
import subprocess
import sys
import venv
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
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


QUICK_PEERS = ("duckdb", "polars", "datafusion", "pyarrow")


def lineitem(rows: int) -> pa.Table:
    """TPC-H's table, but for the values: four lines an order, parts in no order."""
    number = np.arange(rows)
    price = pa.array(number * 7 % 100_000, pa.int64()).cast(pa.decimal128(38)).cast(MONEY)
    day = pa.array(number % 2500 + 8000, pa.int32()).cast(pa.date32())
    text = pa.array([f"text {i % 97}" for i in range(rows)])
    return pa.table(
        {
            "l_orderkey": number // 4,
            "l_partkey": number * 7919 % 1009,
            "l_suppkey": number % 11,
            "l_linenumber": pa.array(number % 4 + 1, pa.int32()),
            **{f"l_{name}": price for name in ("quantity", "extendedprice", "discount", "tax")},
            **{f"l_{name}": text for name in ("returnflag", "linestatus")},
            **{f"l_{name}date": day for name in ("ship", "commit", "receipt")},
            **{f"l_{name}": text for name in ("shipinstruct", "shipmode", "comment")},
        }
    )


MONEY = pa.decimal128(15, 2)


class TestPeers:
    """``experiments/peers.py``, with the peers that are quick to install and to start."""

    @pytest.mark.slow
    def test_every_job(self, tmp_path: Path) -> None:
        missing = [name for name in QUICK_PEERS if importlib.util.find_spec(name) is None]
        if missing:
            install = f"pip install {' '.join(missing)}"
            pytest.fail(install) if os.environ.get("CI") == "true" else pytest.skip(install)
        folder = tmp_path / "data" / "lineitem-sf0.01"
        folder.mkdir(parents=True)
        for file in range(2):
            pq.write_table(lineitem(4000).slice(file * 2000, 2000), folder / f"{file}.parquet")
        words = (
            *("-m", "experiments.peers", "--jobs=clicks-10,zipf,repartition,sort"),
            *("--rows=4000", "--scale=0.01", "--rounds=1"),
            *("--engines", ",".join(("mrflight", *QUICK_PEERS))),
            *("--data", tmp_path / "data", "--out", tmp_path / "out"),
        )
        page = python(*words)
        kept = json.loads((tmp_path / "out" / "peers.json").read_text())["runs"]
        jobs = ("clicks-10-4000-rows", "zipf-4000-rows", "repartition-sf0.01", "sort-sf0.01")
        assert Counter((run["case"], run["outcome"]) for run in kept) == {
            (job, "finished"): 1 + len(QUICK_PEERS) for job in jobs
        }
        assert all(0 < run["job_s"] < run["wall_s"] for run in kept)
        assert all(run["cpu_s"] > 0 and run["peak_rss_bytes"] > 1 << 20 for run in kept)
        assert page.count("\n| mrflight |") == len(jobs)
        assert {path.stem for path in (tmp_path / "out").glob("*.png")} == set(jobs)

        python(*words)  # what has been measured is not measured again
        assert json.loads((tmp_path / "out" / "peers.json").read_text())["runs"] == kept

    def test_tells_who_is_not_there_and_who_takes_too_long(self, tmp_path: Path) -> None:
        bare = tmp_path / "bare"
        venv.create(bare)
        words = (
            *("-m", "experiments.peers", "--jobs=zipf", "--rows=4000", "--rounds=2"),
            *("--engines=mrflight,duckdb", "--time-limit=0.01", "--python", bare / "bin/python"),
            *("--data", tmp_path / "data", "--out", tmp_path / "out"),
        )
        page = python(*words)
        assert "Not measured: duckdb: duckdb is not installed." in page
        assert "| mrflight | - | - | - | - | - | killed after 0 s |" in page
        (run,) = json.loads((tmp_path / "out" / "peers.json").read_text())["runs"]
        assert (run["outcome"], run["round"]) == ("out of time", 0)

    def test_what_runs_come_to(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(str(ROOT))
        from experiments.comparison import page
        from experiments.comparison.cases import Case
        from experiments.comparison.results import Results

        case = Case("sort", "", 10.0, capped=True)
        results = Results(tmp_path / "peers.json", {"threads": 2})
        for engine, number, outcome, wall_s in (
            ("mrflight", 0, "finished", 4.0),
            ("mrflight", 1, "finished", 6.0),
            ("mrflight", 2, "finished", 9.0),
            ("duckdb", 0, "finished", 2.0),
            ("duckdb", 1, "failed", 1.0),
            ("duckdb", 1, "finished", 4.0),
            ("dask", 0, "out of time", 300.0),
            ("daft", 0, "failed", 1.0),
        ):
            run = {"case": case.name, "engine": engine, "round": number, "outcome": outcome}
            times = {"wall_s": wall_s, "job_s": wall_s - 1, "cpu_s": 2 * wall_s}
            memory = {"peak_pss_bytes": 3 << 20, "peak_rss_bytes": 9 << 20}
            results.add(run | times | memory | {"memory_cap_bytes": 2 << (19 + number)})
        assert results.ratios(case, "duckdb") == [2.0, 1.5]
        due = [
            (engine, number)
            for engine in ("mrflight", "duckdb", "dask", "daft")
            for number in range(3)
            if results.is_due(case, engine, number)
        ]
        assert due == [("duckdb", 2), ("daft", 0), ("daft", 1), ("daft", 2)]
        assert page.table(results, case, ("mrflight", "duckdb", "dask", "polars")).splitlines()[
            2:
        ] == [
            "| mrflight | 6.00 (4.00 to 9.00) | 5.00 | 1 | 12.0 | 3 | over the cap of 1 MiB |",
            "| duckdb | 3.00 (2.00 to 4.00) | 2.00 | 1.75 (1.50 to 2.00) | 6.0 | 3 "
            "| over the cap of 1 MiB |",
            "| dask | - | - | - | - | - | killed after 300 s; over the cap of 1 MiB |",
        ]
        with pytest.raises(ValueError, match="other conditions"):
            Results(tmp_path / "peers.json", {"threads": 4})

    def test_generates_lineitem(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(str(ROOT))
        from experiments.comparison import inputs
        from experiments.comparison.cases import Case

        try:
            case = Case("sort", "", 0.001)
            folder = inputs.folder_of(case, tmp_path, Path(sys.executable))
        except FileNotFoundError as missing:
            pytest.fail(str(missing)) if os.environ.get("CI") == "true" else pytest.skip(
                str(missing)
            )
        rows = pa.concat_tables([pq.read_table(path) for path in inputs.files_of(folder)])
        assert (rows.num_rows, rows.schema.names) == (6005, lineitem(1).schema.names)
        assert rows.schema.field("l_comment").type == pa.string()
        assert inputs.arrow_bytes(folder) == rows.nbytes


class TestChecks:
    """``experiments/comparison/checks.py`` tells a wrong result from a right one."""

    @pytest.mark.parametrize(
        ("parts", "fault"),
        [
            (([5, 6, 6], [1, 2, 5]), None),
            (([], [1, 2]), None),
            (([1, 3, 2],), "is not sorted by l_partkey"),
            (([1, 4], [3, 9]), "ends with 4, .* starts with 3"),
        ],
    )
    def test_sorted(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        parts: tuple[list[int], ...],
        fault: str | None,
    ) -> None:
        monkeypatch.syspath_prepend(str(ROOT))
        from experiments.comparison import checks

        files = written(tmp_path, "l_partkey", parts)
        with raises_or_not(checks.WrongResultError, fault):
            checks.check_sorted(files, "l_partkey", "this")

    @pytest.mark.parametrize(
        ("names", "parts", "fault"),
        [
            (("a", "b"), ([1, 1, 2], [3]), None),
            (("a", "b"), ([1, 2], [2, 3]), "1 times a key lies in one part more"),
            (("part=1/a", "part=1/b"), ([1, 2], [2, 3]), None),
            (("part=1/a", "part=2/a"), ([1, 2], [2, 1]), "2 times a key lies in one part more"),
        ],
    )
    def test_together(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        names: tuple[str, ...],
        parts: tuple[list[int], ...],
        fault: str | None,
    ) -> None:
        pytest.importorskip("duckdb")
        monkeypatch.syspath_prepend(str(ROOT))
        from experiments.comparison import checks

        files = written(tmp_path, "l_orderkey", parts, names)
        with raises_or_not(checks.WrongResultError, fault):
            checks.check_together(files, "l_orderkey", "this")

    def test_a_value_that_moved_to_another_row(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pytest.importorskip("duckdb")
        monkeypatch.syspath_prepend(str(ROOT))
        from experiments.comparison import checks
        from experiments.comparison.cases import Case

        right = lineitem(40)
        for name, rows in {
            "given": right,
            "same": right.take(list(range(39, -1, -1))),
            "short": right.slice(1),
            "moved": right.set_column(
                2, "l_suppkey", right["l_suppkey"].take([1, 0, *range(2, 40)])
            ),
        }.items():
            (tmp_path / name).mkdir()
            pq.write_table(rows, tmp_path / name / "rows.parquet")
        oracle = checks.Oracle(Case("repartition", "", 1.0), tmp_path / "given")
        oracle.check(tmp_path / "same", "this")
        for wrong in ("short", "moved"):
            with pytest.raises(checks.WrongResultError, match="sum of hashes"):
                oracle.check(tmp_path / wrong, "this")


def written(
    folder: Path,
    column: str,
    parts: tuple[list[int], ...],
    names: tuple[str, ...] = ("0", "1"),
) -> list[str]:
    files = [folder / f"{name}.parquet" for name in names[: len(parts)]]
    for path, values in zip(files, parts, strict=True):
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({column: pa.array(values, pa.int64())}), path)
    return [str(path) for path in files]


def raises_or_not(error: type[Exception], fault: str | None) -> AbstractContextManager[Any]:
    return nullcontext() if fault is None else pytest.raises(error, match=fault)


class TestTimedProcess:
    """``experiments/timed_process.py`` loses no process out of sight."""

    DETACHED = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    held = bytearray(64 << 20)  # the memory of a daemon that its starter does not wait for
    while time.process_time() < 0.3:
        pass
    open(sys.argv[1], "w").write(str(os.getpid()))
    time.sleep(600)
while not os.path.exists(sys.argv[1]) or not open(sys.argv[1]).read():
    time.sleep(0.01)
if sys.argv[2] == "stays":
    time.sleep(600)
sys.exit(3)
"""

    @pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives orphans a new parent")
    @pytest.mark.parametrize(("starter", "exit_code"), [("ends", 3), ("stays", None)])
    def test_a_daemon_is_counted_and_ended(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        starter: str,
        exit_code: int | None,
    ) -> None:
        monkeypatch.syspath_prepend(str(ROOT))
        from experiments import timed_process

        told = tmp_path / "pid"
        command = [sys.executable, "-c", self.DETACHED, str(told), starter]
        timed = timed_process.measure(command, 60.0 if exit_code else 3.0)
        assert timed.exit_code == exit_code
        assert timed.cpu_s >= 0.3
        assert timed.peak_rss_bytes > 64 << 20
        assert timed.peak_pss_bytes is not None
        assert timed.peak_pss_bytes > 64 << 20
        assert not psutil.pid_exists(int(told.read_text()))

    def test_says_what_a_failed_process_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(str(ROOT))
        from experiments import timed_process

        command = [sys.executable, "-c", "import sys; print('out'); sys.exit('the reason')"]
        timed = timed_process.measure(command, 60.0)
        assert (timed.exit_code, timed.stdout, timed.stderr) == (1, "out\n", "the reason\n")
        with pytest.raises(RuntimeError, match="the reason"):
            timed_process.run(command, 60.0)


class TestSmallExperiments:
    """Those that only print and keep their figures: each once, on next to nothing."""

    @pytest.mark.parametrize(
        ("module", "options", "files"),
        [
            ("kernel", ["--rows", 5000, "--batch-rows", 1500, "--rounds", 1], ["kernel.json"]),
            (
                "shuffle_rate",
                ["--rows", 50_000, "--rounds", 1, "--partitions", "3"],
                ["shuffle_rate.json", "shuffle_rate.md"],
            ),
            (
                "ratios",
                ["--rows", 20_000, "--rounds", 1, "--scale", "0.001,0.002"],
                ["ratios.json", "ratios.md"],
            ),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_leaves_its_figures(
        self, tmp_path: Path, module: str, options: list[object], files: list[str]
    ) -> None:
        out = ["--out", tmp_path / "out"]
        data = ["--data", tmp_path / "data"] if module == "ratios" else []
        python("-m", f"experiments.{module}", *options, *out, *data)
        assert set(files) <= contents(tmp_path / "out").keys()

    def test_spill_and_combine_print_theirs(self) -> None:
        sizes = ["--size", "8 MiB", "--memory", "4 MiB", "--block", "64 KiB"]
        assert "4.0 MiB" in python("-m", "experiments.spill", *sizes)
        combined = python("-m", "experiments.combine", "combiner", "--rows", 20_000)
        assert combined.count("CombinerResult(") == 6
