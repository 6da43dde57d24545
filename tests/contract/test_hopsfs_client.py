"""Tests of hops-deltalake, in an environment that has it instead of deltalake, on a stock HDFS."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from mrflight.errors import LeaseHeldError
from mrflight.shuffle.metadata.registry import Registry
from mrflight.storage import Location, locate
from mrflight.storage.delta import entry_name
from tests.services.built import HOPSFS_PYTHON
from tests.services.hdfs import Hdfs
from tests.services.name_node_proxy import NameNodeProxy
from tests.support.clusters.near_cluster import near_metadata
from tests.support.clusters.registries import TIMEOUT_S, Clock
from tests.support.commands.driver import drive, write_job
from tests.support.faults.faulty_run import await_that
from tests.support.tables.hopsfs_commits import outcome, start

pytestmark = pytest.mark.slow

JOB = """
[job]
name = "hopsfs"
[inputs.rows]
path = "IN/*.csv"
key = ["k"]
[inputs.more]
path = "IN/*.json"
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
def folder(hdfs: Hdfs, tmp_path: Path) -> Location:
    """A folder in HDFS, at its location for deltalake's client."""
    return locate(hdfs.folder(), tmp_path)


def rows(table: Location) -> list[dict[str, Any]]:
    """Read the rows with deltalake."""
    found: list[dict[str, Any]] = deltalake.DeltaTable(table.url).to_pyarrow_table().to_pylist()
    return sorted(found, key=repr)


@pytest.mark.smoke
def test_a_job_from_and_to_hopsfs(
    name_node: NameNodeProxy, folder: Location, tmp_path: Path
) -> None:
    for name, lines in (("1.csv", b"k,v\na,1\nb,2\n"), ("2.json", b'{"k": "c", "v": 3}\n')):
        with folder.child(f"in/{name}").create() as file:
            file.write(lines)
    source, target = (f"{name_node.url}{folder.child(name).path}" for name in ("in", "table"))
    job = write_job(tmp_path, JOB.replace("IN", source).replace("OUT", target))
    done = drive(job, python=HOPSFS_PYTHON)
    assert done.code == 0, done.stderr
    assert f"{target}: the connection is not encrypted" in done.stderr
    at_port = target.replace("hopsfs", "hdfs").replace(name_node.host, f"{name_node.host}:8020")
    assert (done.result["table"], done.result["version"]) == (at_port, 0)
    assert f"{at_port}: let no other job commit to this table at the same time" in done.stderr
    assert "set cluster.metadata of all of them to the same metadata server" in done.stderr
    assert rows(folder.child("table")) == [{"k": k, "v": v} for v, k in enumerate("abc", 1)]
    names = {info.base_name for info in folder.child("table").walk() if info.is_file}
    assert len(names) == 2


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ('mode = "merge"\nkeys = ["k"]', "use append or overwrite for "),
        ('mode = "append"\nschema = "evolve"', "by ALTER TABLE ... ADD COLUMNS in Spark; "),
    ],
)
def test_the_error_for_an_unsupported_mode_names_an_alternative(
    name_node: NameNodeProxy, folder: Location, tmp_path: Path, output: str, expected: str
) -> None:
    """For a table on a disk there is another client; for one in HopsFS there is none."""
    rows = pa.table({"k": ["a"], "v": [1]})
    (tmp_path / "rows.csv").write_text("k,v,more\na,1,2\n")
    text = JOB.replace("IN/*.csv", "rows.csv").replace("IN/*.json", "rows.csv")
    elsewhere = "it works in an environment with 'mrflight[delta]'"
    for table, advice in (
        (f"{name_node.url}{folder.path}/t", f"no other client reaches a HopsFS; {elsewhere} on a"),
        (str(tmp_path / "t"), elsewhere),
    ):
        deltalake.write_deltalake(folder.child("t").url if "://" in table else table, rows)
        job = text.replace("OUT", table).replace('mode = "append"', output)
        done = drive(write_job(tmp_path, job), python=HOPSFS_PYTHON)
        assert done.code == 2
        assert expected in done.message
        assert advice in done.message


@pytest.mark.parametrize(
    ("setting", "value"), [("datanode_port", "1"), ("datanode_host", "127.0.0.9")]
)
def test_the_data_nodes_are_reached_at_the_configured_address(
    name_node: NameNodeProxy, folder: Location, tmp_path: Path, setting: str, value: str
) -> None:
    """Nothing listens there. The error must not call the file damaged."""
    with folder.child("in/1.csv").create() as file:
        file.write(b"k,v\na,1\n")
    text = JOB.replace("IN/*.json", "IN/*.csv").replace("IN", f"{name_node.url}{folder.path}/in")
    text = text.replace("OUT", "table")
    done = drive(write_job(tmp_path, text), python=HOPSFS_PYTHON)
    assert done.code == 0, done.stderr
    text += f'[storage]\n{setting} = "{value}"\n'
    done = drive(write_job(tmp_path, text), python=HOPSFS_PYTHON)
    assert done.code == 1, done.stderr
    assert "/in/1.csv cannot be read, as its store failed: " in done.message
    assert "storage.datanode_host" in done.message
    assert "damaged" not in done.message


def test_every_mode_commits_a_complete_log_entry(
    name_node: NameNodeProxy, folder: Location, tmp_path: Path
) -> None:
    """The client's own transactions on an existing table are incomplete: see `delta_entry`."""
    with near_metadata(Registry(Clock(), TIMEOUT_S)) as metadata:
        common = {"table": f"{name_node.url}{folder.path}/table", "metadata": metadata}
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
        results = outcome(start(HOPSFS_PYTHON, *({**common, **run} for run in runs)))
    assert results == [{"version": version} for version in (0, 1, 1, 2, 2, 3, 0, 1)]
    assert [row["job"] for row in rows(locate("table", tmp_path))] == ["g", "h"]
    table = folder.child("table")
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


class RefusingRegistry(Registry):
    """A registry that counts how often it has refused a lease."""

    def __init__(self) -> None:
        super().__init__(Clock(), TIMEOUT_S)
        self.refusals = 0
        self._lease = self.tables.acquire
        self.tables.acquire = self._counted  # type: ignore[method-assign]

    def _counted(self, *arguments: Any) -> Any:
        try:
            return self._lease(*arguments)
        except LeaseHeldError:
            self.refusals += 1
            raise


@pytest.mark.parametrize("is_common", [False, True], ids=["a lease each", "one lease"])
def test_of_two_concurrent_commits_one_is_lost_without_a_common_lease(
    name_node: NameNodeProxy, folder: Location, is_common: bool
) -> None:
    """The first client is held back after it looked for the entry, before it renames its own."""
    table = f"{name_node.url}{folder.path}/table"
    with (
        near_metadata(common := RefusingRegistry()) as metadata,
        near_metadata(Registry(Clock(), TIMEOUT_S)) as another,
    ):
        first = {"table": table, "metadata": metadata, "job": "first"}
        slow = {"table": table, "metadata": metadata, "job": "slow"}
        other = {"table": table, "metadata": metadata if is_common else another, "job": "other"}
        with name_node.holding("rename2", f"/{1:020}.json") as held:
            slowly = start(HOPSFS_PYTHON, first, slow)
            held.wait()
            others = start(HOPSFS_PYTHON, other)
            if (
                is_common
            ):  # without a lease it would end instead, with the version that is held back
                await_that(
                    lambda: common.refusals >= 2 or others.poll() is not None,
                    "another request of the other client, which has no lease",
                )
                assert others.poll() is None, outcome(others)
                assert parts(folder.child("table")) == 3
            else:
                assert outcome(others) == [{"version": 1}]
        assert outcome(slowly) == [{"version": 0}, {"version": 1}]
        if is_common:
            assert outcome(others) == [{"version": 2}]
    jobs = [row["job"] for row in rows(folder.child("table"))]
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


def test_names_are_taken_literally(name_node: NameNodeProxy, folder: Location) -> None:
    """The client takes a path as part of a URL, and would read the file of another name."""
    for name in ODD:
        with folder.at(folder.path + name).create() as file:
            file.write(name.encode())
    url = f"{name_node.url}{folder.path}"
    subprocess.run([HOPSFS_PYTHON, "-c", NAMES, url], check=True)
    names = {info.path.removeprefix(folder.path) for info in folder.walk() if info.is_file}
    assert names == {f"{name}.again" for name in ODD}


LARGE_BYTES = 20 << 20
LARGE = f"""
import hashlib, random, sys
from pathlib import Path
from mrflight.storage import locate
place = locate(sys.argv[1], Path("/"))
chance = random.Random(11)
data = chance.randbytes({LARGE_BYTES})
file = place.child("deep/large")
with file.create() as stream:
    at = 0
    while at < len(data):
        size = chance.choice([1, 1000, 1 << 16, 3 << 20])
        stream.write(memoryview(data)[at : at + size])
        at += size
    assert stream.tell() == len(data)
assert file.info().size == len(data)
for read in (file, place.child("theirs")):
    assert read.read_bytes() == data
    with read.open_input() as stream:
        assert stream.size() == len(data)
        for _ in range(20):
            start = chance.randrange(len(data))
            size = chance.randrange(1 << 20)
            assert stream.read_at(size, start) == data[start : start + size], (start, size)
        stream.seek(len(data) - 3)
        assert (stream.read(), stream.read()) == (data[-3:], b"")
"""


def test_a_large_file_is_written_in_parts_and_read_by_ranges(
    name_node: NameNodeProxy, folder: Location
) -> None:
    """One file is its own, and the other one was written by another client."""
    data = random.Random(11).randbytes(LARGE_BYTES)
    with folder.child("theirs").create() as file:
        file.write(data)
    url = f"{name_node.url}{folder.path}"
    subprocess.run([HOPSFS_PYTHON, "-c", LARGE, url], check=True)
    assert folder.child("deep/large").read_bytes() == data


LISTS = """
import json, sys
from pathlib import Path
from mrflight.storage import locate
def describe(infos):
    return sorted([info.path, info.is_file, info.size or 0] for info in infos)
place = locate(sys.argv[1], Path("/"))
for name in ("a", "", "a/one", "nothing"):
    folder = place.child(name) if name else place
    info = folder.info()
    print(json.dumps([info.type.name, describe(folder.children()), describe(folder.walk())]))
"""


def test_folders_are_listed_alone_and_recursively(
    name_node: NameNodeProxy, folder: Location
) -> None:
    """A folder whose name only begins like another one's is not in it."""
    for name in ("a/one", "a/b/two", "a/b/c/d/three", "ab/four"):
        with folder.child(name).create() as file:
            file.write(name.encode())
    url = f"{name_node.url}{folder.path}"
    done = subprocess.run(
        [HOPSFS_PYTHON, "-c", LISTS, url], check=True, capture_output=True, text=True
    )
    of_a, of_all, of_file, of_nothing = map(json.loads, done.stdout.splitlines())
    one, b = below(folder, "a/one", 5), below(folder, "a/b")
    deeper = [below(folder, "a/b/c"), below(folder, "a/b/c/d")]
    files = [below(folder, "a/b/c/d/three", 13), below(folder, "a/b/two", 7)]
    assert of_a == ["Directory", [b, one], sorted([b, *deeper, *files, one])]
    assert of_all[1] == [below(folder, "a"), below(folder, "ab")]
    assert of_all[2] == sorted([*of_all[1], *of_a[2], below(folder, "ab/four", 7)])
    assert of_file[0] == "File"
    assert of_nothing == ["NotFound", [], []]


def below(folder: Location, name: str, size: int = 0) -> list[Any]:
    """Return the listing of a file, or of a folder if ``size`` is 0."""
    return [f"{folder.path}/{name}", bool(size), size]
