"""HopsFS's own client, in an environment that has it and not deltalake, on a stock HDFS."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import deltalake
import pytest

from mrflight.shuffle.registry import Registry
from mrflight.storage import Location, locate
from mrflight.storage.delta import entry_name
from tests.services.built import HOPSFS_PYTHON
from tests.services.hdfs import Hdfs
from tests.services.name_node_proxy import NameNodeProxy
from tests.support.driver import drive, write_job
from tests.support.faults import await_that
from tests.support.hopsfs_commits import outcome, start
from tests.support.near_cluster import near_metadata
from tests.support.registries import TIMEOUT_S, Clock

JOB = """
[job]
name = "hopsfs"
[inputs.rows]
path = "IN"
key = ["k"]
[shuffle]
partitions = 1
[output]
table = "OUT"
mode = "append"
[cluster]
workers = 1
"""


@pytest.fixture
def place(hdfs: Hdfs, tmp_path: Path) -> Location:
    """A folder, as deltalake's own client finds it."""
    return locate(hdfs.folder(), tmp_path)


def rows(table: Location) -> list[dict[str, Any]]:
    """By somebody else's client."""
    found: list[dict[str, Any]] = deltalake.DeltaTable(table.url).to_pyarrow_table().to_pylist()
    return sorted(found, key=repr)


def test_a_job_from_and_to_hopsfs(
    name_node: NameNodeProxy, place: Location, tmp_path: Path
) -> None:
    with place.child("in.csv").create() as file:
        file.write(b"k,v\na,1\nb,2\n")
    source, target = (f"{name_node.url}{place.child(name).path}" for name in ("in.csv", "table"))
    job = write_job(tmp_path, JOB.replace("IN", source).replace("OUT", target))
    done = drive(job, python=HOPSFS_PYTHON)
    assert done.code == 0, done.stderr
    assert f"{target}: the connection is not encrypted" in done.stderr
    at_port = target.replace("hopsfs", "hdfs").replace(name_node.host, f"{name_node.host}:8020")
    assert (done.result["table"], done.result["version"]) == (at_port, 0)
    assert f"{at_port}: let no other job commit to this table at the same time" in done.stderr
    assert rows(place.child("table")) == [{"k": "a", "v": 1}, {"k": "b", "v": 2}]
    names = {info.base_name for info in place.child("table").walk() if info.is_file}
    assert len(names) == 2


def test_every_mode_commits_what_it_says(
    name_node: NameNodeProxy, place: Location, tmp_path: Path
) -> None:
    """The client's own transactions on a table that is there do not: see `delta_entry`."""
    with near_metadata(Registry(Clock(), TIMEOUT_S)) as metadata:
        common = {"table": f"{name_node.url}{place.path}/table", "metadata": metadata}
        runs = [
            {"job": "a"},
            {"job": "b", "run_id": "monday"},
            {"job": "c", "run_id": "monday"},
            {"job": "d", "mode": "overwrite", "run_id": "tuesday"},
            {"job": "e", "mode": "overwrite", "run_id": "tuesday"},
            {"job": "f"},
            {"job": "g", "table": str(tmp_path / "table")},
            {"job": "h", "table": str(tmp_path / "table")},
        ]
        told = outcome(start(HOPSFS_PYTHON, *({**common, **run} for run in runs)))
    assert told == [{"version": version} for version in (0, 1, 1, 2, 2, 3, 0, 1)]
    assert [row["job"] for row in rows(locate("table", tmp_path))] == ["g", "h"]
    table = place.child("table")
    assert [row["job"] for row in rows(table)] == ["d", "f"]
    kinds = [sorted(key for action in entry(table, v) for key in action) for v in range(4)]
    assert kinds == [
        ["add", "commitInfo", "metaData", "protocol", "txn"],
        ["add", "commitInfo", "txn"],
        ["add", "commitInfo", "remove", "remove", "txn"],
        ["add", "commitInfo", "txn"],
    ]


def parts(table: Location) -> int:
    return sum(info.base_name.startswith("part-") for info in table.children())


def entry(table: Location, version: int) -> list[dict[str, Any]]:
    lines = table.child(entry_name(version)).read_bytes().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("is_common", [False, True], ids=["a fence each", "one fence"])
def test_of_two_at_the_same_time_one_is_lost_without_a_common_fence(
    name_node: NameNodeProxy, place: Location, is_common: bool
) -> None:
    """The first is held back when the client has looked, and is about to move its entry."""
    table = f"{name_node.url}{place.path}/table"
    with (
        near_metadata(Registry(Clock(), TIMEOUT_S)) as metadata,
        near_metadata(Registry(Clock(), TIMEOUT_S)) as another,
    ):
        first = {"table": table, "metadata": metadata, "job": "first"}
        slow = {"table": table, "metadata": metadata, "job": "slow"}
        other = {"table": table, "metadata": metadata if is_common else another, "job": "other"}
        with name_node.holding("rename2", f"/{1:020}.json") as held:
            slowly = start(HOPSFS_PYTHON, first, slow)
            held.wait()
            others = start(HOPSFS_PYTHON, other)
            await_that(lambda: parts(place.child("table")) == 3, "the other's part")
            if not is_common:
                assert outcome(others) == [{"version": 1}]
        assert outcome(slowly) == [{"version": 0}, {"version": 1}]
        if is_common:
            assert outcome(others) == [{"version": 2}]
    jobs = [row["job"] for row in rows(place.child("table"))]
    assert jobs == (["first", "other", "slow"] if is_common else ["first", "slow"])


NAMES = """
import sys
from pathlib import Path
from mrflight.storage import locate
place = locate(sys.argv[1], Path("/"))
seen = {}
for info in place.walk():
    if info.is_file:
        file = place.at(info.path)
        assert file.info().is_file, info.path
        seen[info.path] = file.read_bytes()
assert place.at("/").info().type.name == "Directory"
for path, content in seen.items():
    assert content == path.removeprefix(place.path).encode(), path
    with place.at(path + ".again").create() as file:
        file.write(content)
    place.at(path).delete_file()
    place.at(path).delete_file()
"""
ODD = ["/x%41", "/xA", "/q?#z", "/k=%C3%BC/ü b"]


def test_names_are_taken_as_they_are(name_node: NameNodeProxy, place: Location) -> None:
    """That client takes them for parts of a URL, and would read the file of another name."""
    for name in ODD:
        with place.at(place.path + name).create() as file:
            file.write(name.encode())
    url = f"{name_node.url}{place.path}"
    subprocess.run([HOPSFS_PYTHON, "-c", NAMES, url], check=True, timeout=60)
    names = {info.path.removeprefix(place.path) for info in place.walk() if info.is_file}
    assert names == {f"{name}.again" for name in ODD}
