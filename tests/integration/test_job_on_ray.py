"""Tests the resources that a job takes of Ray, and a job on Ray with a standing cluster."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import mrflight
from mrflight.events.history import read_view
from mrflight.events.profile import profile
from mrflight.runtime.ray.cluster import RayServer
from tests.support.faults import faulty_job
from tests.support.faults.matrix import at_the_moment, rows_of
from tests.support.ray.head import RayHead
from tests.support.ray.run import EMPTY_MIB, OnRay, all_gone
from tests.support.suite.waiting import hang_s

pytestmark = pytest.mark.slow

KIB = 2**10
MIB = 2**20


def test_ray_counts_cores_and_memory_and_holds_no_blocks(on_ray: OnRay, tmp_path: Path) -> None:
    ray_head = on_ray.head
    with at_the_moment(tmp_path, "shuffle", "shuffle.memory=64 MiB") as (run, _):
        assert run.shuffle().size_bytes > 8 * MIB
        taken = ray_head.has_taken(memory=(64 + 3 * EMPTY_MIB) * MIB, CPU=2)
        # These are the payloads that calls share: sources, partitioners and functions.
        assert 0 < taken["object_store_memory"] < 64 * KIB
        run.go_on()
        done = run.finish()
    assert done.code == 0, done.stderr
    assert rows_of(tmp_path) == faulty_job.expected_rows()
    all_gone(ray_head)
    taken = ray_head.has_taken(memory=0, CPU=0)
    assert taken["object_store_memory"] == 0


def test_callables_of_a_job_in_python_reach_the_workers(
    ray_head: RayHead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are no module's: this function's own, with what they close over."""
    monkeypatch.chdir(tmp_path)  # what is in the current folder is sent as well
    table = pa.table({"k": [n % 7 for n in range(3_000)], "n": list(range(3_000))})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=1_000)
    factor = 10

    def largest(rows: pa.Table) -> pa.Table:
        return rows.group_by("k").aggregate([("scaled", "max")])

    rows = mrflight.read(tmp_path / "in.parquet").map(
        lambda batch: batch.append_column("scaled", pc.multiply(batch["n"], factor))
    )
    options = dict(option.split("=", 1) for option in ray_head.options)
    job = rows.reduce(largest, key="k").with_settings({**options, "cluster.workers": 2})
    result = job.write_delta(tmp_path / "out")
    assert (result.rows_in, result.rows_out) == (3_000, 7)
    made = mrflight.read_table(tmp_path / "out").sort_by("k")
    expected = [factor * max(range(key, 3_000, 7)) for key in range(7)]
    assert made["scaled_max"].to_pylist() == expected
    all_gone(ray_head)


def test_workers_on_ray_report_what_they_did(
    ray_head: RayHead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"k": range(3_000)}), tmp_path / "in.parquet", row_group_size=1_000)
    options = dict(option.split("=", 1) for option in ray_head.options)
    own = {"cluster.workers": 2, "job.events": "history"}
    rows = (
        mrflight.read("in.parquet").repartition("k", partitions=4).with_settings({**options, **own})
    )
    result = rows.write_parquet("out")
    (history,) = (tmp_path / "history").iterdir()
    view = read_view(history)
    host = os.uname().nodename
    stages = {stage.name: stage for stage in view.stages.values()}
    workers = stages["map"].workers.keys() | stages["reduce"].workers.keys()
    assert {name.partition(":")[0] for name in workers} == {host}
    assert stages["map"].sent_bytes == stages["reduce"].fetched_bytes == result.bytes_shuffled
    assert result.profile == profile(view)
    assert view.processes.keys() >= {"driver", "gateway"}
    all_gone(ray_head)


def test_rows_of_a_job_on_ray_reach_the_caller(
    ray_head: RayHead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = pa.table({"k": [n % 7 for n in range(3_000)], "n": list(range(3_000))})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=1_000)
    options = dict(option.split("=", 1) for option in ray_head.options)
    rows = mrflight.read("in.parquet").with_settings({**options, "cluster.workers": 2})
    assert rows.collect() == table
    assert rows.sort_by("k desc", "n").head(2).to_pylist() == [{"k": 6, "n": 6}, {"k": 6, "n": 13}]
    for _ in rows:
        break
    all_gone(ray_head)


@pytest.mark.slow
def test_bad_rows_on_ray_are_counted_and_written(
    ray_head: RayHead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that has written some ends, so that its map runs again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mrflight.planner.stage_plan._PACKS_PER_WORKER", 1_000)
    (tmp_path / "in").mkdir()
    for file in range(4):
        lines = ["x" * 10_000 if n % 10 == file else str(n) for n in range(1_000)]
        (tmp_path / "in" / f"{file}.csv").write_text("\n".join(["n", *lines, ""]))

    def dies_once(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch["n"][0].as_py() == 1:  # of the first file
            try:
                (tmp_path / "died").touch(exist_ok=False)
            except FileExistsError:
                return batch
            os._exit(1)
        return batch

    options = dict(option.split("=", 1) for option in ray_head.options)
    rows = mrflight.read("in", types={"n": "int64"}, bad_rows="bad").map(dies_once)
    job = rows.with_settings({**options, "cluster.workers": 2})
    result = job.write_parquet("out")
    assert (result.bad_rows, result.rows_in, result.rows_out) == ({"in": 400}, 3_600, 3_600)
    assert result.attempts.failed == 1
    files = sorted((tmp_path / "bad").iterdir())
    assert [file.name.split("-")[1] for file in files] == [f"{n:05d}" for n in range(4)]
    bad = mrflight.read_table("bad").select(["file", "line"]).to_pylist()
    assert sorted((row["file"], row["line"]) for row in bad) == [
        (str(tmp_path / "in" / f"{file}.csv"), n + 2)
        for file in range(4)
        for n in range(1_000)
        if n % 10 == file
    ]
    all_gone(ray_head)


def test_workers_on_ray_use_the_servers_of_a_standing_cluster(
    on_ray: OnRay, cluster: mrflight.Cluster, tmp_path: Path
) -> None:
    with at_the_moment(tmp_path, "map", standing=cluster.location) as (run, _):
        assert len(run.processes("worker")) == 2
        assert run.processes("metadata") + run.processes("data") == []
        assert cluster.status().shuffles == [run.shuffle()]
        run.go_on()
        done = run.finish()
    assert done.code == 0, done.stderr
    assert rows_of(tmp_path) == faulty_job.expected_rows()


def test_the_end_of_a_job_is_no_loss_of_its_servers(
    ray_head: RayHead,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """However soon Ray tells of the ends."""
    really = RayServer.kill
    killed: list[str] = []

    def kill(server: RayServer) -> None:
        really(server)
        assert server._has_ended.wait(hang_s())
        killed.append(server.name)

    monkeypatch.setattr(RayServer, "kill", kill)
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"k": [1, 2, 2]}), "rows.parquet")
    options = dict(option.split("=", 1) for option in ray_head.options)
    with caplog.at_level(logging.INFO, "mrflight.runtime.supervised_cluster"):
        rows = mrflight.read("rows.parquet").group_by("k").agg(n="count(*)")
        # One map and one partition would need no server.
        rows.with_settings(options | {"shuffle.partitions": 2}).write_parquet("out")
    assert {"metadata", "data0"} <= set(killed)
    assert caplog.messages == []
    all_gone(ray_head)
