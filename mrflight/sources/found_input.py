"""The files of an input, once they are found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec

from mrflight.config.formats import InputFormat
from mrflight.config.input_spec import InputSpec
from mrflight.errors import InputError
from mrflight.sources.hive_partitions import PartitionColumns, PartitionTexts
from mrflight.storage import Location
from mrflight.storage.store import FileVersion
from mrflight.system.side_by_side import side_by_side
from mrflight.units import format_count

T = TypeVar("T")
R = TypeVar("R")


class InputFile(msgspec.Struct, frozen=True):
    """A file of an input."""

    path: str
    version: FileVersion
    partition: PartitionTexts = ()
    """What its ``key=value`` folders say."""

    @property
    def size_bytes(self) -> int:
        return self.version.size_bytes


class FoundInput(msgspec.Struct, frozen=True):
    """The files of an input. A Delta table has none here: its log lists them."""

    name: str
    spec: InputSpec
    format: InputFormat
    root: Location
    """The first path of the input. All files are in its store."""
    files: tuple[InputFile, ...]
    partition_columns: PartitionColumns | None = None
    """The columns in the names of ``key=value`` folders; None if there are none."""
    skipped_folders: int = 0
    """The number of folders that were not listed because they are not needed."""

    @property
    def place(self) -> str:
        """What the input reads, for messages."""
        others = len(self.spec.paths) - 1
        return self.root.url + (f" and {format_count(others, 'other path')}" if others else "")

    def location(self, file: InputFile) -> Location:
        """Return the location of one of the files, in the version that was found."""
        return self.root.at(file.path).of(file.version)

    def each(self, function: Callable[[T], R], files: Iterable[T]) -> Iterator[R]:
        """Yield ``function(file)`` for the files in order, which reads side by side in a store."""
        return side_by_side(function, files, self.root.store.requests_at_once)

    def key(self, setting: str) -> str:
        """Return the key path of one of this input's settings, for messages."""
        return f"inputs.{self.name}.{setting}"

    def check_no_partition_column(self, names: Iterable[str], where: str) -> None:
        """Raise InputError if one of a file's columns is in the names of its folders as well."""
        in_folders = self.partition_columns.types if self.partition_columns is not None else ()
        if both := [name for name in names if name in in_folders]:
            raise InputError(
                f"{where} has a column {both[0]!r}, and lies in a folder {both[0]}=...; set "
                f"{self.key('hive')} = false to read the column of the files, without those of the "
                "folders"
            )
