"""A folder as an input that a job may have written: its manifest says which part files count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from mrflight.errors import CommitError, InputError, OutputError, StoreError
from mrflight.storage import Location
from mrflight.storage.manifest import Manifest
from mrflight.storage.manifest_log import MANIFESTS, ManifestLog
from mrflight.storage.part_name import is_part

if TYPE_CHECKING:
    from pyarrow import fs


class WrittenFolder(msgspec.Struct, frozen=True):
    """A folder, and its newest manifest if a job has written it."""

    root: Location
    manifest: Manifest | None

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The types that the columns of its ``key=value`` folders had when it was written."""
        if self.manifest is None:
            return {}
        schema = self.manifest.schema
        return {key: schema.field(key).type for key in self.manifest.partition_by}

    def is_committed(self, file: fs.FileInfo) -> bool:
        """Return whether a file is not a part that a job has left behind or will still commit."""
        if self.manifest is None or not is_part(file.base_name):
            return True
        return file.path.removeprefix(self.root.path.rstrip("/") + "/") in self.manifest.files


def open_folder(root: Location, below: Iterable[str] | None = None) -> WrittenFolder:
    """Look for the manifest of a folder; ``below`` are paths in it, if they have been listed.

    Raises InputError for one that cannot be read, and StoreError.
    """
    manifests = root.child(MANIFESTS)
    if below is None:
        is_written = manifests.is_folder()
    else:
        is_written = any(path.startswith(manifests.path) for path in below)
    try:
        return WrittenFolder(root, ManifestLog(root).newest().manifest if is_written else None)
    except OutputError as error:
        raise InputError(str(error)) from error
    except CommitError as error:
        raise StoreError(str(error)) from error


def partition_types(
    name: str, declared: Mapping[str, pa.DataType], folders: Iterable[WrittenFolder]
) -> dict[str, pa.DataType]:
    """Return the types of an input's partition columns that are known.

    They are ``declared`` by the job, or were written. Raises InputError if folders do not agree.
    """
    types: dict[str, tuple[pa.DataType, Location]] = {}
    for folder in folders:
        for key, kind in folder.types.items():
            first, root = types.setdefault(key, (kind, folder.root))
            if first != kind and key not in declared:
                raise InputError(
                    f"inputs.{name}.path: the folders {key}=... in {folder.root.url} are {kind}, "
                    f"and those in {root.url} are {first}; set inputs.{name}.types.{key}"
                )
    return {**{key: kind for key, (kind, _) in types.items()}, **declared}
