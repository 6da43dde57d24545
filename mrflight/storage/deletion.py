"""Decides which files of tables may be deleted, and deletes them. Nothing else deletes any.

A file is deleted only by proof that it is the table's own: by its normalised path it lies below the
table's own location, with no link between the two, and in no folder that has a log or manifests of
its own; and no other table of the same catalog names it. The caller, who knows the format, says
where tables of it have files, and proves that the table does not need the file any more.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import msgspec

from mrflight.storage.location import Location

__all__ = [
    "FileKey",
    "FileKeys",
    "KeptFile",
    "NotDeletableError",
    "TableFiles",
    "delete_created",
    "delete_created_folder",
    "is_table_folder",
]

FileKey = tuple[str, str]
"""Equal for two locations of the same file: its store, and its path there without links."""

_RECORDS = frozenset({"_delta_log", "_mrflight", "_mrflight.json", ".hoodie", "_versions"})
"""The names of the log and of the manifests of a table, also of Hudi's and Lance's."""
_LOOKED_UP = 8
"""Up to so many folders of a store are looked up one by one: each is a request, and so is a part of
a listing of all."""
_METADATA = "metadata"
"""The folder of an Iceberg table's metadata. A folder of this name alone makes no table."""


class NotDeletableError(PermissionError):
    """A file stays, because it is not proven to be the table's own."""


class KeptFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that its table does not need any more, and that stays all the same."""

    url: str
    why: str
    """A clause whose subject is the file."""
    is_named: bool = False
    """Whether a table of the catalog names it."""


class FileKeys:
    """Tells which locations are of the same file, through whatever links.

    The links of each folder are resolved once, so that an object is for one operation.
    """

    def __init__(self) -> None:
        self._real: dict[str, str] = {}

    def of(self, file: Location) -> FileKey:
        """Return what is equal for all locations of the file."""
        path = posixpath.normpath(file.path)
        if not file.store.is_disk:
            return file.store.identity, path
        folder, name = os.path.split(path)
        if (real := self._real.get(folder)) is None:
            real = self._real[folder] = os.path.realpath(folder)
        return file.store.identity, os.path.join(real, name)


class TableFiles:
    """The files of one table, as far as they may be deleted.

    Each folder is looked at once, so that an object is for one operation.
    """

    def __init__(
        self,
        *folders: Location,
        named_by_others: Callable[[set[FileKey]], set[FileKey]] | None = None,
        outside: str = "it does not lie below the table's own location",
        is_place: Callable[[str], bool] = lambda path: True,
    ) -> None:
        """``folders`` are the table's own location, and others that the caller has proven.

        ``named_by_others`` returns which of some files other tables of the same catalog name.
        ``outside`` says why files elsewhere stay. ``is_place`` returns whether such a table has
        files at a path below its folder. Below it may also lie data of others, with their records
        elsewhere.
        """
        self._folders = folders
        self._named_by_others = named_by_others
        self._outside = outside
        self._is_place = is_place
        self._why_closed: dict[str, str | None] = {}
        self._tables: dict[str, set[str]] = {}
        """The folders with a log or manifests below one of ``folders``, once all are listed."""
        self._keys = FileKeys()

    def key(self, file: Location) -> FileKey:
        """See `FileKeys`."""
        return self._keys.of(file)

    def split(self, files: Iterable[Location]) -> tuple[list[Location], list[KeptFile]]:
        """Return the files that may be deleted, and those that stay; raises OSError."""
        found = [(file, self.why_kept(file)) for file in files]
        own = {self.key(file) for file, why in found if why is None}
        named = self._named_by_others(own) if own and self._named_by_others else set()
        may, kept = [], []
        for file, why in found:
            if why is not None:
                kept.append(KeptFile(file.url, why))
            elif self.key(file) in named:
                kept.append(KeptFile(file.url, "a table of the catalog names it", True))
            else:
                may.append(file)
        return may, kept

    def why_kept(self, file: Location) -> str | None:
        """Return why a file stays, whatever other tables name; None if it may be deleted."""
        try:
            self._locate(file)
        except NotDeletableError as error:
            return str(error)
        return None

    def delete(self, file: Location) -> None:
        """Delete a file; it is no error if there is none. Raises NotDeletableError and OSError."""
        folder, path = self._locate(file)
        folder.child(path).delete_file(below=folder)

    def delete_empty_folder(self, folder: Location) -> None:
        """Delete a folder below the table's if it is empty, and if it may be deleted."""
        with suppress(NotDeletableError):
            above, path = self._locate(folder)
            above.child(path).delete_empty_folder(below=above)

    def _locate(self, file: Location) -> tuple[Location, str]:
        """Return the table's folder that a file lies below, and its path there."""
        file = file.at(posixpath.normpath(file.path))
        for folder in self._folders:
            path = self._path_below(file, folder)
            if path is not None:
                self._check(folder, path)
                if not self._is_place(path):
                    raise NotDeletableError("it lies in a folder where such a table has no files")
                return folder, path
        raise NotDeletableError(self._outside)

    def _path_below(self, file: Location, folder: Location) -> str | None:
        folder = folder.at(posixpath.normpath(folder.path))
        if not file.lies_in(folder) and file.store.is_disk and folder.store.is_disk:
            # Perhaps one of the two paths leads through a link above the table.
            file = file.at(self.key(file)[1])
            folder = folder.at(os.path.realpath(folder.path))
        return file.path[len(folder.path.rstrip("/")) + 1 :] if file.lies_in(folder) else None

    def _check(self, folder: Location, path: str) -> None:
        """Raise NotDeletableError for a path through a link, or below another table's folder."""
        own, (*between, name) = folder, path.split("/")
        for each in between:
            is_record = folder is own and (each in _RECORDS or each == _METADATA)
            folder = folder.child(each)
            if folder.path not in self._why_closed:
                self._why_closed[folder.path] = self._look(own, folder, is_record)
            if (why := self._why_closed[folder.path]) is not None:
                raise NotDeletableError(why)
        if _is_link(folder.child(name)):
            raise NotDeletableError("it is a link")

    def _look(self, own: Location, folder: Location, is_record: bool) -> str | None:
        """Return why no file of a folder may be deleted; ``is_record`` if it is the own log."""
        if _is_link(folder):
            return f"it lies behind the link {folder.url}"
        if not is_record and self._is_table(own, folder):
            return f"it lies in {folder.url}, which has a log or manifests of its own"
        return None

    def _is_table(self, own: Location, folder: Location) -> bool:
        if own.store.is_disk or len(self._why_closed) < _LOOKED_UP:
            return is_table_folder(folder)
        if own.path not in self._tables:
            self._tables[own.path] = set(_table_folders(own))
        return folder.path in self._tables[own.path]


def is_table_folder(folder: Location) -> bool:
    """Return whether a folder has a log or manifests of its own, of any format; raises OSError."""
    if folder.store.is_disk:  # whose folders may be long, or not readable; a broken link counts
        known = (*_RECORDS, _METADATA)
        names = {name for name in known if os.path.lexists(os.path.join(folder.path, name))}
    else:
        names = {info.base_name for info in folder.children()}
    if names & _RECORDS:
        return True
    found = folder.child(_METADATA).children() if _METADATA in names else []
    return any(".metadata.json" in info.base_name for info in found)


def _table_folders(above: Location) -> Iterator[str]:
    """Yield the paths of the folders below one that have a log or manifests of their own."""
    for info in above.walk():
        folder, name = posixpath.split(info.path)
        parent, of = posixpath.split(folder)
        if name in _RECORDS:
            yield folder
        if of in _RECORDS or (of == _METADATA and ".metadata.json" in name):
            yield parent  # a store may list no folders


def delete_created(file: Location) -> None:
    """Delete a file that this process, or its job, has created under a name that no other has."""
    file.delete_file()


def delete_created_folder(folder: Location) -> None:
    """Delete a folder that this job has created, if it is empty."""
    folder.delete_empty_folder()


def _is_link(location: Location) -> bool:
    return location.store.is_disk and os.path.islink(location.path)
