"""Experiments that only print and keep their figures: each once, on next to nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.commands.experiments import contents, python

pytestmark = pytest.mark.soak

TPCH_ENGINES = "mrflight,datafusion,pyspark,dask,dask-distributed"
"""Those that are not installed take no part."""

WITH_DATA = (
    "aggregates",
    "budget",
    "ratios",
    "tpch",
    "ordering",
    "map_parts",
    "tune",
    "tls_cost",
    "sql",
)


class TestSmallExperiments:
    """Those that only print and keep their figures: each once, on next to nothing."""

    @pytest.mark.parametrize(
        ("module", "options", "files"),
        [
            ("kernel", ["--rows", 5000, "--batch-rows", 1500, "--rounds", 1], ["kernel.json"]),
            ("decoding", ["--events", 1000, "--rounds", 1], ["decoding.json", "decoding.md"]),
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
            (
                "small_files",
                [
                    *("--rounds", 1, "--csv-files", 150, "--parquet-files", 110),
                    *("--s3-files", 20, "--latency-ms", 1),
                ],
                ["small_files.json", "small_files.md"],
            ),
            ("start", ["--rounds", 1], ["start.json", "start.md"]),
            (
                "pushed_events",
                ["--seconds", 0.2, "--producers", 4, "--processes", 2],
                ["pushed_events.json", "pushed_events.md"],
            ),
            (
                "events",
                [
                    *("--rounds", 1, "--rows", 8_000, "--partitions", 4),
                    *("--tasks", 50, "--attempts", 500),
                ],
                ["events.json", "events.md"],
            ),
            (
                "tune",
                [
                    *("--scale", "0.01", "--rounds", 1, "--budget", "1 s"),
                    *("--cases", "clicks,sessions,q18"),
                ],
                ["tune.json", "tune.md"],
            ),
            (
                "join",
                [
                    *("--orders", 2000, "--rounds", 1, "--keys", "strings shuffled"),
                    *("--engines", "mrflight in pieces,arrow"),
                ],
                ["join.json", "join.md"],
            ),
            (
                "aggregates",
                ["--rows", 20_000, "--rounds", 1, "--groups", "10,5000"],
                ["aggregates.json", "aggregates.md"],
            ),
            ("scale", ["--sizes", "50", "--servers", 5], ["scale.json", "scale.md"]),
            (
                "tpch",
                ["--scale", "0.01", "--rounds", 1, "--queries", "q6", "--engines", TPCH_ENGINES],
                ["tpch.json", "tpch.md"],
            ),
            ("ordering", ["--scale", "0.01", "--rounds", 2], ["ordering.json", "ordering.md"]),
            (
                "map_parts",
                ["--scale", "0.01", "--rounds", 1, "--queries", "q1,q3"],
                ["map_parts.json", "map_parts.md"],
            ),
            (
                "budget",
                [
                    *("--rows", 20_000, "--scale", "0.01", "--rounds", 1),
                    *("--jobs", "clicks-10,repartition,q3"),
                ],
                ["budget.json", "budget.md", "budget.png"],
            ),
            ("merge", ["--rows", 2000, "--share", 0.1], ["merge.json"]),
            ("tls_cost", ["--rows", 20_000, "--rounds", 1], ["tls_cost.json", "tls_cost.md"]),
            ("sync_cost", ["--commits", 2, "--rounds", 2], ["sync_cost.json", "sync_cost.md"]),
            (
                "sql",
                [
                    *("--scale", "0.01", "--rounds", 1, "--repeats", 1, "--queries", "q3"),
                    *("--engines", "mrflight,mrflight-shuffled,datafusion,daft"),
                    *("--rows", 20_000, "--fill=0 B"),
                ],
                ["sql.json", "sql.md"],
            ),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_leaves_its_figures(
        self, tmp_path: Path, module: str, options: list[object], files: list[str]
    ) -> None:
        out = ["--out", tmp_path / "out"]
        data = ["--data", tmp_path / "data"] if module in WITH_DATA else []
        python("-m", f"experiments.{module}", *options, *out, *data)
        assert set(files) <= contents(tmp_path / "out").keys()


class TestStreams:
    """Those that read topics, whose servers a machine may lack: each once, on a few events."""

    def test_a_topic_is_read_in_every_way(self, needs_kafka: None, tmp_path: Path) -> None:
        page = python(
            "-m", "experiments.ingest", "--events", 3000, "--rounds", 1, "--out", tmp_path
        )
        assert [f"| {way} |" in page for way in ("json", "arrow", "plain")] == [True] * 3
        figures = json.loads((tmp_path / "ingest.json").read_text())["figures"]
        assert {way: len(runs) for way, runs in figures.items()} == dict.fromkeys(figures, 1)

    def test_systems_write_a_stream(
        self,
        needs_kafka: None,
        needs_postgres: None,
        needs_iceberg: None,
        needs_duckdb: Path,
        needs_ducklake: Path,
        tmp_path: Path,
    ) -> None:
        """After three writes that do not count there is one more batch in the topic."""
        systems = ["ducklake-inlined", "iceberg-duckdb", "mrflight-log", "mrflight-delta"]
        words = ["--systems", ",".join(systems), "--events", 4000, "--seconds", 1, "--rounds", 1]
        page = python("-m", "experiments.streams", *words, "--out", tmp_path)
        tables = [line for line in page.splitlines() if line.startswith("**Table ")]
        assert [line[8:11] for line in tables] == [f"5.{n}" for n in range(1, 7)] + ["6.1"]
        drawn = {path.name.split("-")[2] for path in tmp_path.glob("figure-5-*.svg")}
        assert drawn == {str(number) for number in range(1, 13)}
        outcomes = json.loads((tmp_path / "streams.json").read_text())["outcomes"]
        events = {(each["system"], each["batch"]): each["events"] for each in outcomes}
        assert events.keys() == {(name, batch) for batch in (1, 1000) for name in systems}
        assert min(events.values()) > 0
        for each in outcomes:
            assert each["events"] == each["batch"] * each["writes_s"]["count"], each["system"]
        assert {events[name, 1000] for name in systems if name != "mrflight-delta"} == {1000}
        assert str(tmp_path) not in (tmp_path / "streams.json").read_text()
