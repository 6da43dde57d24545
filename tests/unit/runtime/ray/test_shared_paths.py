"""The files of a job's folder that nodes of Ray are sent, and those that they must share."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mrflight
from mrflight.config.job_file import decode_job
from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError, WorkerLostError
from mrflight.runtime.ray import shared_paths as ray_paths
from mrflight.runtime.ray.messages import Connected, Node
from mrflight.runtime.ray.shared_paths import exclude_patterns, fingerprint_all, verify_shared_paths
from tests.support.suite.messages import refused

HERE = Node("a", "10.0.0.1", 2, 1 << 30)
THERE = Node("b", "10.0.0.2", 2, 1 << 30)
RAY = Connected("a", (HERE, THERE))


class NodesElsewhere:
    """Node a sees this machine's files; node b sees a folder of the test with a copy."""

    def __init__(self, root_of_b: Path | None = None, error: Exception | None = None) -> None:
        self._root_of_b = root_of_b
        self._error = error

    def on_node(self, node: str, function: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if node == THERE.id and self._error is not None:
            future.set_exception(self._error)
            return future
        paths, scratch = args
        if node == THERE.id and self._root_of_b is not None:
            paths = tuple(str(self._root_of_b / Path(path).relative_to("/")) for path in paths)
        future.set_result(function(paths, scratch))
        return future


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job's folder with an input of one file."""
    folder = tmp_path / "job"
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "a.csv").write_text("k\n1\n")
    return folder


def spec(**outputs: Any) -> JobSpec:
    return decode_job(
        {
            "job": {"name": "j"},
            "inputs": {"rows": {"path": outputs.pop("path", "in/*.csv"), "key": ["k"]}},
            "output": {"table": "out/t", **outputs},
        }
    )


def check(job: Path, scratch: Path, nodes: NodesElsewhere, **outputs: Any) -> None:
    verify_shared_paths(spec(**outputs), job, scratch, RAY, nodes)  # type: ignore[arg-type]


def test_nodes_that_share_the_disk_are_accepted_and_no_probe_stays(
    job: Path, tmp_path: Path
) -> None:
    check(job, tmp_path, NodesElsewhere())
    assert sorted(path.name for path in job.rglob("*")) == ["a.csv", "in"]


def test_an_input_that_a_node_does_not_have_is_refused(job: Path, tmp_path: Path) -> None:
    elsewhere = NodesElsewhere(tmp_path / "b")
    with refused(JobFileError, "inputs.rows.path"):
        check(job, tmp_path, elsewhere)
    with refused(JobFileError, "inputs.rows.path"):
        check(job, tmp_path, elsewhere, path=["s3://bucket/a", "in/a.csv"])


def test_an_output_on_another_disk_is_refused(job: Path, tmp_path: Path) -> None:
    copied = tmp_path / "b" / job.relative_to("/")
    (copied / "in").mkdir(parents=True)
    (copied / "in" / "a.csv").write_text("k\n1\n")
    with pytest.raises(JobFileError, match=r"^output\.table: .*mrflight-probe-.* does not see"):
        check(job, tmp_path, NodesElsewhere(tmp_path / "b"))
    check(job, tmp_path, NodesElsewhere(tmp_path / "b"), table="s3://bucket/out")
    assert not list(job.glob(".mrflight-probe-*"))


def test_tables_in_memory_need_a_scratch_folder_that_all_nodes_see(
    job: Path, tmp_path: Path
) -> None:
    rows = mrflight.read(pa.table({"k": [1]})).job("s3://bucket/out")
    verify_shared_paths(rows, job, tmp_path, RAY, NodesElsewhere())  # type: ignore[arg-type]
    elsewhere: Any = NodesElsewhere(tmp_path / "b")
    with pytest.raises(JobFileError, match=rf"^cluster\.spill_dir: {tmp_path}/\.mrflight-probe"):
        verify_shared_paths(rows, job, tmp_path, RAY, elsewhere)
    assert not list(tmp_path.glob(".mrflight-probe-*"))


def test_a_node_without_mrflight_or_without_a_scratch_folder_is_refused(
    job: Path, tmp_path: Path
) -> None:
    lost = NodesElsewhere(error=WorkerLostError("it could not be begun: no module"))
    with refused(JobFileError, "cluster.ray_address"):
        check(job, tmp_path, lost)
    with refused(JobFileError, "cluster.spill_dir"):
        check(job, tmp_path / "gone", NodesElsewhere())
    assert fingerprint_all((), str(tmp_path)) == ("",)


def test_modules_are_sent_and_data_is_not(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_paths, "_MAX_FILE_BYTES", 1_000)
    for name in ("clicks.py", "lib/rates.csv", "out/t/part.parquet", ".git/config", "big [1].bin"):
        path = job / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x" * (2_000 if "big" in name else 10))
    left = exclude_patterns(spec(), job)
    assert {"/in", "/out/t", "/.git", "/big\\ \\[1\\].bin"} <= set(left)
    assert not {"/clicks.py", "/lib", "/lib/rates.csv"} & set(left)
    monkeypatch.setattr(ray_paths, "_MAX_FOLDER_BYTES", 15)
    with refused(JobFileError):
        exclude_patterns(spec(), job)


@pytest.mark.parametrize("told_by", ["CACHEDIR.TAG", "pyvenv.cfg"])
def test_caches_and_environments_are_neither_sent_nor_counted(
    job: Path, told_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_paths, "_MAX_FOLDER_BYTES", 15)
    for name in ("clicks.py", f"kernel/target/{told_by}", "kernel/target/debug/built"):
        path = job / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x" * 10)
    assert set(exclude_patterns(spec(), job)) == {"/in", "/kernel/target"}
    (job / "kernel" / "target" / told_by).unlink()
    with refused(JobFileError):
        exclude_patterns(spec(), job)


def test_a_folder_and_an_old_copy_of_it_have_different_fingerprints(tmp_path: Path) -> None:
    for name, rows in (("one", "1"), ("same", "1"), ("old", "1\n2")):
        (tmp_path / name / "inner").mkdir(parents=True)
        (tmp_path / name / "1.csv").write_text(rows)
        (tmp_path / name / "gone").symlink_to("nowhere")
    one, same, old = (
        ray_paths.fingerprint(str(tmp_path / name)) for name in ("one", "same", "old")
    )
    assert one == same != old
    (tmp_path / "same" / "inner").rename(tmp_path / "same" / "other")
    assert ray_paths.fingerprint(str(tmp_path / "same")) != one
