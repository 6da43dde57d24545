"""``experiments/peers.py``, as small as it goes."""

from __future__ import annotations

import importlib.util
import json
import sys
import venv
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.commands.experiments import ROOT, lineitem, python

QUICK_PEERS = ("duckdb", "pyarrow")


class TestPeers:
    """``experiments/peers.py``, with the peers that are quick to install and to start."""

    @pytest.mark.slow
    def test_every_job(self, tmp_path: Path) -> None:
        missing = [name for name in QUICK_PEERS if importlib.util.find_spec(name) is None]
        if missing:
            pytest.skip(f"pip install {' '.join(missing)}")
        folder = tmp_path / "data" / "lineitem-sf0.01"
        folder.mkdir(parents=True)
        for file in range(2):
            pq.write_table(lineitem(4000).slice(file * 2000, 2000), folder / f"{file}.parquet")
        words = (
            *("-m", "experiments.peers", "--fill=0 B", "--jobs=clicks-10,sort"),
            *("--rows=4000", "--scale=0.01", "--rounds=1"),
            *("--engines", ",".join(("mrflight", *QUICK_PEERS))),
            *("--data", tmp_path / "data", "--out", tmp_path / "out"),
        )
        page = python(*words)
        kept = json.loads((tmp_path / "out" / "peers.json").read_text())["runs"]
        jobs = ("clicks-10-4000-rows", "sort-sf0.01")
        assert Counter((run["case"], run["outcome"]) for run in kept) == {
            (job, "finished"): 1 + len(QUICK_PEERS) for job in jobs
        }
        assert all(0 < run["job_s"] < run["wall_s"] for run in kept)
        assert all(run["cpu_s"] > 0 and run["peak_rss_bytes"] > 1 << 20 for run in kept)
        assert page.count("\n| mrflight |") == len(jobs)
        assert {path.stem for path in (tmp_path / "out").glob("*.png")} == set(jobs)

        python(*words)  # what has been measured is not measured again
        assert json.loads((tmp_path / "out" / "peers.json").read_text())["runs"] == kept

    @pytest.mark.soak
    def test_tells_who_is_not_there_and_who_takes_too_long(self, tmp_path: Path) -> None:
        bare = tmp_path / "bare"
        venv.create(bare)
        words = (
            *("-m", "experiments.peers", "--fill=0 B", "--jobs=zipf", "--rows=4000", "--rounds=2"),
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
            pytest.skip(str(missing))
        rows = pa.concat_tables([pq.read_table(path) for path in inputs.files_of(folder)])
        assert (rows.num_rows, rows.schema.names) == (6005, lineitem(1).schema.names)
        assert rows.schema.field("l_comment").type == pa.string()
        assert inputs.arrow_bytes(folder) == rows.nbytes
