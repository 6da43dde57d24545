"""The files that a fragment of a query reads by itself, and the part of them that is a task's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import pyarrow as pa

from mrflight.sources.base import Reader, Split
from mrflight.storage import Location
from mrflight.storage.store import FileVersion


class ScannedFile(NamedTuple):
    """A file that DataFusion reads by itself, as it was when the query was planned."""

    location: Location
    version: FileVersion | None


class FileGroup(msgspec.Struct, frozen=True):
    """Some of the files of a scan, or parts of them."""

    encoded: bytes = b""
    """The group in the bytes of a scan."""
    files: tuple[ScannedFile, ...] = ()


class GroupSplit(Split, frozen=True):
    """What a task reads of each divided scan of its fragment."""

    groups: tuple[FileGroup, ...] = ()


@dataclass(frozen=True)
class FileGroups(Reader):
    """Stands for the files that the scans of a fragment read by themselves."""

    schema: pa.Schema

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        raise AssertionError("a fragment reads its files by itself")

    def divide(self, split: Split, count: int) -> list[Split]:
        """Return the split: a task is as large as its query was planned for."""
        return [split]
