"""An output that cannot be written costs no map where that can be known, and no retry."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mrflight.storage import Location, locate
from tests.services.hdfs import Hdfs
from tests.services.minio import Bucket
from tests.support.commands.driver import drive, driver_command, write_job
from tests.support.commands.leftovers import nothing_left_over, tree
from tests.support.commands.unprivileged import read_only, unprivileged

pytestmark = pytest.mark.runs_on_ray

JOB = """
[job]
name = "unwritable"
speculation = false
[inputs.rows]
path = "in.csv"
key = ["k"]
[shuffle]
partitions = 4
[output]
table = "above/out"
mode = "append"
partition_by = ["k"]
[cluster]
workers = 2
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "in.csv").write_text("k,n\n" + "".join(f"{n % 40},{n}\n" for n in range(400)))
    (tmp_path / "above").mkdir()
    return write_job(tmp_path, JOB)


def refused(job: Path, *options: str) -> dict[str, Any]:
    token = {name: value for name, value in os.environ.items() if name.startswith("RAY_AUTH_")}
    with nothing_left_over(job.parent / "tmp") as environment:
        done = subprocess.run(
            unprivileged(driver_command(job, *options)),
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **token, **environment},
            capture_output=True,
            text=True,
        )
    assert done.returncode == 2, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.slow
@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_a_folder_that_cannot_be_written_is_told_before_the_map(job: Path, format: str) -> None:
    with read_only(job.parent / "above"):
        result = refused(job, "--set", f"output.format={format}")
    assert f"{job.parent}/above is not a folder that this user can write to" in result["error"]
    assert result["attempts"]["map"] == 0
    assert tree(job.parent / "above") == {}


@pytest.mark.slow
@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_a_file_in_the_way_fails_the_job_at_its_first_attempt(job: Path, format: str) -> None:
    done = subprocess.run(driver_command(job, "--set", f"output.format={format}"))
    assert done.returncode == 0
    (job.parent / "in.csv").write_text("k,n\n77,1\n")
    (job.parent / "above" / "out" / "k=77").write_text("in the way")
    before = tree(job.parent / "above")
    result = refused(job, "--set", f"output.format={format}")
    assert "k=77/part-" in result["error"]
    assert "move away what is in its place" in result["error"]
    assert (result["attempts"]["reduce"], result["attempts"]["failed"]) == (1, 1)
    assert tree(job.parent / "above") == before


@pytest.mark.runs_on_ray(False, "its workers have the name of Ray's user")
@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_a_name_node_that_forbids_it_fails_the_job_at_its_first_attempt(
    job: Path, hdfs: Hdfs, format: str
) -> None:
    options = ["--set=cluster.workers=1", f"--set=output.format={format}"]
    options += [f"--set=output.table={hdfs.folder()}"]
    done = drive(job, *options, environment={"HADOOP_USER_NAME": "somebody"})
    result = done.result
    assert done.code == 2, done.stderr
    assert "Permission denied: user=somebody, access=WRITE, inode=" in result["error"]
    assert "let this user write there, or choose another folder\n" in result["error"]
    assert ".java:" not in result["error"]
    assert (result["attempts"]["reduce"], result["attempts"]["failed"]) == (1, 1)


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_a_bucket_that_may_only_be_read_fails_the_job_at_its_first_attempt(
    job: Path, bucket: Bucket, format: str
) -> None:
    storage = bucket.let_anyone_read()
    options = ["--set=cluster.workers=1", f"--set=output.format={format}"]
    options += [f"--set=output.table={bucket.url}/table"]
    options += [f'--set=storage.{name}="{value}"' for name, value in storage.items()]
    done = drive(job, *options)
    result = done.result
    assert done.code == 2, done.stderr
    assert "AccessDenied: Access Denied.; let this user write there" in result["error"]
    assert (result["attempts"]["reduce"], result["attempts"]["failed"]) == (1, 1)


LISTS = [("delta", "_delta_log"), ("parquet", "_mrflight")]
"""The formats, each with the folder of its log or its manifests."""

UNPARTITIONED = ("--set=output.partition_by=[]", "--set=cluster.workers=1")


def refused_at_the_commit(job: Path, table: Location, *options: str, **environment: str) -> str:
    """The error of a job whose rows are written, and which leaves nothing of that."""
    before = names_in(table)
    done = drive(job, *options, environment=environment)
    assert done.code == 2, done.stderr
    assert done.result["attempts"]["failed"] == 0
    error: str = done.result["error"]
    assert error.endswith("; let this user write there, or choose another folder")
    assert names_in(table) == before
    return error


def names_in(table: Location) -> set[str]:
    """Return the names of all files."""
    return {info.path for info in table.walk() if info.is_file}


@pytest.mark.parametrize(("format", "lists"), LISTS)
def test_a_name_node_that_forbids_the_commit_alone(
    job: Path, hdfs: Hdfs, format: str, lists: str
) -> None:
    table = locate(hdfs.folder(), job.parent)
    options = [f"--set=output.format={format}", f"--set=output.table={table.url}", *UNPARTITIONED]
    done = drive(job, *options)
    assert done.code == 0, done.stderr
    hdfs.change_mode("777", table.path)
    error = refused_at_the_commit(job, table, *options, HADOOP_USER_NAME="somebody")
    assert "Permission denied: user=somebody, access=WRITE, inode=" in error
    assert f'"{table.path}/{lists}' in error.replace("\\", "")
    assert ".java:" not in error


@pytest.mark.parametrize(("format", "lists"), LISTS)
def test_a_bucket_that_takes_rows_and_no_commit(
    job: Path, bucket: Bucket, format: str, lists: str
) -> None:
    storage = bucket.let_anyone_read(and_write=["table/part-*"])
    table = locate(f"{bucket.url}/table", job.parent, bucket.options)
    options = [f"--set=output.format={format}", f"--set=output.table={table.url}", *UNPARTITIONED]
    options += [f'--set=storage.{name}="{value}"' for name, value in storage.items()]
    error = refused_at_the_commit(job, table, *options)
    assert "AccessDenied: Access Denied." in error
    assert f"/{lists}/" in error
