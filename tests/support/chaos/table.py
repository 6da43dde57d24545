"""The table of a stream to which much is done, as stock readers see it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from urllib.parse import urlsplit

from pyarrow import fs

import mrflight
from tests.support.suite.waiting import hang_s

REMOVE = ("--older-than", "0 s", "--remove")
FOREIGN = -1
"""The producer of rows that another writer has appended."""


_UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_FOREIGN_FILE = re.compile(
    rf"part-\d{{5}}-{_UUID}-c000\.snappy\.parquet|\d{{5}}-\d+-{_UUID}\.parquet"
)
"""The names that deltalake and pyiceberg give to data files."""


class Row(NamedTuple):
    """A row, and the event that it is; a row of another writer is none."""

    producer: int
    number: int
    partition: int | None
    offset: int | None


class Move(NamedTuple):
    """A commit of a stream: the next offsets of some partitions before and after it."""

    name: str
    """That of the commit, for messages."""
    before: Mapping[str, int]
    after: Mapping[str, int]


@dataclass(frozen=True)
class ChaosTable(ABC):
    """A table, the section of the job that names it, and a writer that is not mrflight."""

    base: Path
    """The folder of the job."""
    output: Mapping[str, Any]
    """The section ``[output]``."""
    storage: Mapping[str, str] = field(default_factory=dict)
    """The section ``[storage]``."""

    look_every_s: ClassVar[float] = 0.2
    """How often it is looked at while something is waited for."""

    @property
    def environment(self) -> dict[str, str]:
        """The variables that commands of mrflight need for the table."""
        return {}

    @abstractmethod
    def exists(self) -> bool: ...

    @abstractmethod
    def rows(self) -> list[Row]:
        """Return the rows that a stock reader finds."""

    @abstractmethod
    def moves(self) -> list[Move]:
        """Return the commits of the stream, from the first on, as the table has recorded them."""

    @abstractmethod
    def recorded(self) -> dict[str, int]:
        """Return the next offset of each partition, as the newest version has them."""

    @abstractmethod
    def append(self, numbers: Iterable[int]) -> None:
        """Append rows of the producer `FOREIGN` by another program; raises if that is not sure."""

    @abstractmethod
    def unnamed(self) -> set[str]:
        """Return the files in the table's folder that no version names."""

    @abstractmethod
    def remove_unnamed(self) -> None:
        """Run ``mrflight clean``; raises AssertionError if it fails."""

    def clean(self) -> tuple[int, list[str]]:
        """Remove what killed ingesters have left; return how many files, and what stays."""
        if not (before := self._unnamed_of_mrflight()):
            return 0, []
        self.remove_unnamed()
        left = self._unnamed_of_mrflight()
        return len(before - left), [f"{name} is left" for name in sorted(left)]

    def _unnamed_of_mrflight(self) -> set[str]:
        """Leave out files of another program whose append has failed; they are not ours."""
        return {each for each in self.unnamed() if not _FOREIGN_FILE.fullmatch(Path(each).name)}


def run_mrflight(
    arguments: Iterable[str], base: Path, storage: Mapping[str, str], **environment: str
) -> None:
    """Run a command of mrflight in a folder; raise AssertionError with its message if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "mrflight", *arguments],
        cwd=base,
        env={
            **os.environ,
            **{name.upper(): value for name, value in storage.items()},
            "PYTHONPATH": str(Path(mrflight.__file__).parents[1]),  # of this checkout
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=hang_s(),
    )
    assert done.returncode == 0, f"mrflight {list(arguments)} failed: {done.stderr[-3000:]}"


class Folder:
    """A folder of a disk or a bucket, whose files are read by pyarrow."""

    def __init__(self, url: str, storage: Mapping[str, str]) -> None:
        self._fs: fs.FileSystem
        if url.startswith("s3:"):
            endpoint = urlsplit(storage["aws_endpoint_url"])
            self._fs = fs.S3FileSystem(
                access_key=storage["aws_access_key_id"],
                secret_key=storage["aws_secret_access_key"],
                endpoint_override=endpoint.netloc,
                scheme=endpoint.scheme,
                region=storage["aws_region"],
            )
        else:
            self._fs = fs.LocalFileSystem()
        self._path = url.removeprefix("s3://").removeprefix("file://").rstrip("/")

    def files(self) -> list[str]:
        """Return the paths of all files below it, in their order."""
        selector = fs.FileSelector(self._path, allow_not_found=True, recursive=True)
        infos = self._fs.get_file_info(selector)
        return sorted(info.path.removeprefix(f"{self._path}/") for info in infos if info.is_file)

    def read(self, path: str) -> bytes:
        """Return the bytes of a file."""
        with self._fs.open_input_stream(f"{self._path}/{path}") as stream:
            return bytes(stream.readall())
