"""Tests of locations: parsing of URLs, comparison, and files that are created concurrently."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from mrflight.errors import InputError, JobError
from mrflight.storage import Location, hopsfs, locate
from mrflight.storage.delta import data_file, stored_file
from mrflight.storage.disk import Disk
from tests.support.suite.messages import refused


class Busy:
    """The local file system, with another job that removes each folder as soon as it is created."""

    def __init__(self, folder: Location, times: int) -> None:
        self._disk = fs.LocalFileSystem()
        self._folder = folder
        self.times = times

    def create_dir(self, path: str, recursive: bool) -> None:
        self._disk.create_dir(path, recursive=recursive)
        if self.times:
            self.times -= 1
            self._folder.delete_empty_folder()

    def open_output_stream(self, path: str) -> pa.NativeFile:
        return self._disk.open_output_stream(path)


def test_a_folder_that_is_removed_before_its_file_exists_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = locate("t/k=a", tmp_path)
    disk = Busy(folder, times=1)
    monkeypatch.setattr(Disk, "filesystem", disk)
    with folder.child("part").create() as file:
        file.write(b"rows")
    assert disk.times == 0
    assert (tmp_path / "t" / "k=a" / "part").read_bytes() == b"rows"


def test_a_folder_that_is_removed_twice_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = locate("t/k=a", tmp_path)
    monkeypatch.setattr(Disk, "filesystem", Busy(folder, times=2))
    with pytest.raises(FileNotFoundError):
        folder.child("part").create()


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIA:HUSH@bucket/table",
        "s3a://AKIA@bucket",
        "S3://AKIA:HU/SH@bucket/table",
        "s3://AKIA:HUSH",
        "hdfs://AKIA:HUSH@node:8020/table",
        "https://AKIA:HUSH@host/table",
        "file://AKIA:HUSH@host/table",
    ],
)
def test_a_url_with_credentials_is_not_shown(tmp_path: Path, url: str) -> None:
    with refused(JobError) as caught:
        locate(url, tmp_path)
    parts = ("AKIA", "HU", "SH")
    assert [part for part in parts if part in str(caught.value)] == []


def test_a_path_may_contain_colons_and_at_signs(tmp_path: Path) -> None:
    assert locate("s3://bucket/AKIA:HUSH@x", tmp_path).url == "s3://bucket/AKIA:HUSH@x"
    assert locate("a:b@c/d", tmp_path / "x").path == str(tmp_path / "x/a:b@c/d")


SAME = [
    ("s3://bucket/data", "s3a://bucket/data"),
    ("s3://bucket", "s3://bucket/"),
    ("hdfs://node/data", "hdfs://node:8020/data"),
    ("hopsfs://node/data", "hdfs://node:8020/data"),
    ("hdfs://NODE:8020/data", "hdfs://node:8020/data/"),
    ("hdfs://[::1]/data", "hdfs://[::1]:8020/data"),
    ("/data", "file:///data"),
]
DIFFERENT = [
    ("s3://bucket/data", "s3://other/data"),
    ("s3://bucket/data", "/data"),
    ("s3://node/data", "hdfs://node/data"),
    ("hdfs://node:8020/data", "hdfs://node:9000/data"),
    ("hdfs://node/data", "hdfs://other/data"),
]


@pytest.mark.parametrize(("one", "other"), [*SAME, *DIFFERENT])
def test_locations_are_the_same_only_in_the_same_store(
    tmp_path: Path, one: str, other: str
) -> None:
    """The options for reaching a store do not matter."""
    are_same = (one, other) in SAME
    here = locate(one, tmp_path, {"aws_access_key_id": "1"})
    there = locate(other, tmp_path)
    below = there.child("out/table")
    assert (here.is_same(there), there.is_same(here)) == (are_same, are_same)
    assert below.lies_in(here) == are_same
    assert not here.lies_in(below)
    assert not here.lies_in(there)


def test_hops_deltalake_ignores_the_port_of_a_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hopsfs, "is_client", lambda: True)
    assert locate("hdfs://node:9000/t", tmp_path).is_same(locate("hopsfs://node/t", tmp_path))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("~/visits/*.csv", "/home/ann/visits/*.csv"),
        ("./~/visits", "/base/~/visits"),
        ("~visits", "/base/~visits"),
        ("visits/~", "/base/visits/~"),
        ("file:///~/visits", "/~/visits"),
    ],
)
def test_a_tilde_at_the_beginning_is_the_home_folder(
    path: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert locate(path, Path("/base")).path == expected


@pytest.mark.parametrize("root", ["/", "s3://bucket"])
def test_everything_in_a_store_lies_in_its_root(tmp_path: Path, root: str) -> None:
    top = locate(root, tmp_path)
    assert top.child("a").lies_in(top)
    assert not top.lies_in(top)


def test_a_folder_with_the_same_prefix_is_another_folder(tmp_path: Path) -> None:
    assert not locate("s3://bucket/data2/x", tmp_path).lies_in(locate("s3://bucket/data", tmp_path))


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:///tmp/x%41.csv", "/tmp/x%41.csv"),
        ("file:///tmp/a b/*?#.csv", "/tmp/a b/*?#.csv"),
        ("file://localhost/tmp/x", "/tmp/x"),
        ("FILE://LOCALHOST/tmp/x", "/tmp/x"),
        ("file:/tmp/x", "/tmp/x"),
        ("file:////tmp/x/", "/tmp/x"),
        ("file:///", "/"),
    ],
)
def test_names_in_a_file_url_are_taken_literally(tmp_path: Path, url: str, path: str) -> None:
    assert locate(url, tmp_path) == Location(path)


def test_a_file_url_without_slashes_is_a_relative_path(tmp_path: Path) -> None:
    assert locate("file:out/x%41", tmp_path).path == f"{tmp_path}/out/x%41"


def test_a_file_url_with_a_host_is_refused_with_a_correction(tmp_path: Path) -> None:
    with pytest.raises(JobError) as caught:
        locate("file://out/clicks", tmp_path)
    message = str(caught.value)
    assert message.startswith("file://out/clicks: what follows file:// is a host, and 'out' ")
    assert "write file:///out/clicks for" in message
    assert "or out/clicks for a relative one" in message


@pytest.mark.parametrize("url", ["file://", "file://localhost"])
def test_a_file_url_without_a_path_is_refused(tmp_path: Path, url: str) -> None:
    with refused(JobError):
        locate(url, tmp_path)


@pytest.mark.parametrize(
    ("table", "logged", "found"),
    [
        ("/t", "k=a%20b/part%2541", "/t/k=a b/part%41"),
        ("/t", "k=a:/part", "/t/k=a:/part"),
        ("/t", "file:///u/a%20b", "/u/a b"),
        ("/t", "file:/u/a%20b", "/u/a b"),
        ("/t", "/u/a%20b", "/u/a b"),
        ("s3://bucket/t", "/u/a%20b", "s3://bucket/u/a b"),
        ("s3://bucket/t", "s3a://bucket/u/a%20b", "s3://bucket/u/a b"),
    ],
)
def test_the_urls_in_a_log_are_decoded(tmp_path: Path, table: str, logged: str, found: str) -> None:
    assert data_file(locate(table, tmp_path), logged).url == found
    assert stored_file(locate(table, tmp_path), logged).url == found


def test_a_data_file_in_another_store_is_refused(tmp_path: Path) -> None:
    table, logged = locate("s3://bucket/t", tmp_path), "s3://other/t/part"
    assert data_file(table, logged).url == logged
    with refused(InputError):
        stored_file(table, logged)


@pytest.mark.parametrize(
    ("table", "logged"),
    [
        ("/t", "hdfs://node:8020/part"),
        ("s3://bucket/t", "hopsfs://node/part"),
        ("hdfs://node/t", "hdfs://other/part"),
        ("s3://bucket/t", "file:///etc/part"),
        ("hdfs://node/t", "file:/etc/part"),
    ],
)
def test_a_data_file_at_a_host_that_a_log_names_is_refused(
    tmp_path: Path, table: str, logged: str
) -> None:
    with refused(InputError):
        data_file(locate(table, tmp_path), logged)
