"""The experiments on Delta tables: each once, on next to nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.latency import published
from experiments.latency.cells import Cell, Data
from experiments.latency.results import Results, estimate
from experiments.latency.runs import Run
from tests.support.commands.experiments import contents, python
from tests.support.suite.messages import refused

pytestmark = pytest.mark.soak


def test_latency_leaves_its_tables_and_pictures_and_goes_on(tmp_path: Path) -> None:
    out, data = tmp_path / "out", tmp_path / "data"
    words = ["-m", "experiments.delta_latency", "--stores", "disk", "--cores", 1, "--out", out]
    words += ["--tables", "supplier-0.01", "--data", data, "--repeats", 1]
    python(*words, "--operations", "write")
    first = json.loads((out / "delta_latency.json").read_text())["runs"]
    page = python(*words)
    after = json.loads((out / "delta_latency.json").read_text())["runs"]
    assert {name: after[name] for name in first} == first
    assert [name.split("/")[0] for name in after] == ["write"] * 2 + ["read"] * 2
    assert all(len(runs) == 1 for runs in after.values())
    assert "## 5.1 Writes" in page
    assert "## 5.4 Reads" in page
    ours = [line for line in page.splitlines() if line.startswith("| mrflight, disk | 100 | 1 |")]
    assert len(ours) == 4
    assert not any("(" in line for line in ours)  # no intervals, of one run
    assert {f"{what}-1-core.png" for what in ("write-latency", "read-throughput")} <= contents(
        out
    ).keys()
    assert str(tmp_path) not in (out / "delta_latency.json").read_text()
    assert not list(data.glob("tables-*"))


@pytest.mark.parametrize("operation", ["write", "read"])
def test_the_thesis_figures_agree_with_each_other(operation: str) -> None:
    """Rows by seconds are its throughput, and so are the changes: what a slip would break."""
    for pipeline, latencies in published.LATENCY[operation].items():
        for rows, latency in latencies.items():
            throughput = published.THROUGHPUT[operation][pipeline][rows]
            assert rows / 1000 / latency.one_core == pytest.approx(throughput.one_core, rel=1e-3)
            for less, more in zip(latency.changes, throughput.changes, strict=True):
                assert (1 / (1 - less / 100) - 1) * 100 == pytest.approx(more, abs=0.25, rel=0.01)


def test_an_interval_is_the_same_for_the_same_values() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 10.0]
    mean, low, high = estimate(values)
    assert (mean, low, high) == estimate(values)
    assert mean == 4.0
    assert 1.0 < low < mean < high < 10.0
    assert estimate([2.0, 2.0]) == (2.0, 2.0, 2.0)


def test_runs_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    cell, run = Cell("read", "disk", 1, Data("supplier", 1), "mrflight"), Run(1.0, 2.0, 3)
    Results.load(path, {"memory": "1 GiB"}).add(cell, run)
    assert Results.load(path, {"memory": "1 GiB"}).of(cell) == [run]
    with refused(ValueError):
        Results.load(path, {"memory": "2 GiB"})


def test_a_cell_is_found_by_its_name() -> None:
    cell = Cell("write", "hdfs", 2, Data("lineitem", 0.1), "delta-rs")
    assert Cell.named(cell.name) == cell


def test_requests_are_counted(needs_minio: None, tmp_path: Path) -> None:
    ways = "mrflight;write_deltalake;rename, v1;rename, v2"
    words = ["--parts", "1,2", "--rows", 20_000, "--ways", ways, "--merges", 2, "--out", tmp_path]
    page = python("-m", "experiments.commit_requests", *words)
    assert page.count("| mrflight | 1 | 2 | 0 | 0 | 0 | 3 | 6 |") == 1
    assert page.count("| mrflight | 2 | 3 | 0 | 0 | 0 | 3 | 8 |") == 1
    costs = json.loads((tmp_path / "commit_requests.json").read_text())["costs"]
    of = {(cost["way"], cost["parts"], cost["duplicates"]): cost for cost in costs}
    assert of["rename, v1", 2, False]["requests"]["COPY"] == 4
    assert of["rename, v2", 2, False]["requests"]["COPY"] == 2
    assert of["mrflight", 2, True]["requests"] == {"HEAD": 2, "LIST": 4, "PUT": 4, "DELETE": 1}
    ratio = {key: cost["written_bytes"] / cost["output_bytes"] for key, cost in of.items()}
    assert 1.0 < ratio["mrflight", 2, False] < 1.02
    assert 3.0 <= ratio["rename, v1", 2, False] < 3.01
    appends = json.loads((tmp_path / "commit_requests.json").read_text())["appends"]
    in_turn = [(cost["mode"], sum(cost["requests"].values())) for cost in appends]
    made = [("append", count) for count in (6, 10, 12, 14, 16)]
    theirs = [("append", count) for count in (10, 11, 13, 15, 17)]
    assert in_turn == [*made, ("overwrite", 24), *theirs, ("overwrite", 19)]
    assert page.count("| mrflight, a job | append | 4 | 3 | 2 | 0 | 0 | 9 | 2 | 16 |") == 1
    merges = json.loads((tmp_path / "commit_requests.json").read_text())["merges"]
    ours = [cost["requests"] for cost in merges if cost["way"] == "mrflight, a job"]
    assert ours == [
        {"LIST": 6, "HEAD": 4, "GET": 17, "PUT": 3},
        {"LIST": 6, "HEAD": 5, "GET": 22, "PUT": 4, "DELETE": 1},
    ]
    assert "## A merge of a few rows into one file of a table of 2" in page


def test_no_commit_of_two_processes_is_lost(
    needs_hdfs: None, needs_hopsfs: None, tmp_path: Path
) -> None:
    """HopsFS's client commits by turns, of which the other stores need none."""
    words = ["--commits", 3, "--stores", "disk,hopsfs", "--out", tmp_path]
    page = python("-m", "experiments.concurrent_commits", *words)
    outcomes = json.loads((tmp_path / "concurrent_commits.json").read_text())["outcomes"]
    assert [each["client"].split()[0] for each in outcomes] == ["deltalake", "hops-deltalake"]
    for each in outcomes:
        assert f"| {each['store']} | {each['client']} | 6 | 6 | 0 | 0 | 0 |" in page
    assert "No whole job runs around it" in page
