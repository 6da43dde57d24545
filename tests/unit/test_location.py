"""Files of a store, and who else is at work there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from mrflight.errors import JobError
from mrflight.storage import Location, locate
from mrflight.storage.disk import Disk


class Busy:
    """The local one, where another job removes empty folders in the moment after they are made."""

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


def test_a_folder_that_goes_again_before_its_file_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = locate("t/k=a", tmp_path)
    disk = Busy(folder, times=1)
    monkeypatch.setattr(Disk, "filesystem", disk)
    with folder.child("part").create() as file:
        file.write(b"rows")
    assert disk.times == 0
    assert (tmp_path / "t" / "k=a" / "part").read_bytes() == b"rows"


def test_a_folder_that_goes_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    with pytest.raises(JobError, match=r"^[^:]*://\.\.\.: .* \[storage\]") as caught:
        locate(url, tmp_path)
    parts = ("AKIA", "HU", "SH")
    assert [part for part in parts if part in str(caught.value)] == []


def test_a_path_may_have_what_a_url_has_before_its_host(tmp_path: Path) -> None:
    assert locate("s3://bucket/AKIA:HUSH@x", tmp_path).url == "s3://bucket/AKIA:HUSH@x"
    assert locate("a:b@c/d", tmp_path / "x").path == str(tmp_path / "x/a:b@c/d")
