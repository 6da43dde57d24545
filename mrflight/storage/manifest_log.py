"""``_mrflight/00000003.json``: the numbered manifests of a folder, of which the highest counts.

A manifest is put only if there is none with its number, as the entries of a Delta log are. Of two
jobs one is first, and the other looks again. One manifest that is overwritten would not do: the
stores have put-if-absent in common, but not compare-and-swap.

Each manifest follows from the one before and has every run of it, so those below the newest can be
removed. Their numbers are free then, and a put that was suspended may take one of them later. So a
put only counts once the newest manifest has its run.
"""

from __future__ import annotations

import re

import msgspec

from mrflight.errors import CommitError, OutputError
from mrflight.storage.deletion import TableFiles, delete_created_folder
from mrflight.storage.disk import committed_syncs
from mrflight.storage.location import Location
from mrflight.storage.manifest import Manifest, decode_manifest, encode_manifest

MANIFESTS = "_mrflight"
"""The folder of the manifests of a folder of plain files."""
UNNUMBERED = "_mrflight.json"
"""The manifest that older versions wrote on disks. It counts until there is a numbered one."""
MANIFEST_NAME = re.compile(r"(\d{8,})\.json")

_NONE = -1
_MAX_READS = 30
"""The number of tries to read the newest manifest, which a newer one may replace each time."""


class Entry(msgspec.Struct, frozen=True):
    """The newest manifest of a folder at a moment."""

    number: int
    """-1 if there is no numbered manifest."""
    manifest: Manifest | None
    """None if there is no manifest at all."""


class ManifestLog(msgspec.Struct, frozen=True):
    """The manifests of one folder."""

    folder: Location

    def newest(self) -> Entry:
        """Return the manifest that counts.

        Raises OutputError if it cannot be read as a manifest, CommitError if the store fails.
        """
        for _ in range(_MAX_READS):
            number = self._newest_number()
            if number == _NONE and not self.folder.store.is_disk:
                return Entry(number, None)
            manifest = self._read(number)
            # An unnumbered manifest is removed after the first numbered one is there.
            if manifest is not None or (number == _NONE and self._newest_number() == _NONE):
                return Entry(number, manifest)
        raise CommitError(
            f"{self._child(MANIFESTS).url}: other jobs were faster {_MAX_READS} times; "
            "run the job again"
        )

    def put(self, number: int, manifest: Manifest) -> None:
        """Put a manifest if there is none with its number.

        Of several puts one succeeds, and the others raise FileExistsError. Raises CommitError if
        the store fails, perhaps after the manifest is there.
        """
        location = self._numbered(number)
        try:
            location.put_if_absent(encode_manifest(manifest))
        except FileExistsError:
            raise
        except OSError as error:
            delete_created_folder(self._child(MANIFESTS))
            raise CommitError(f"{location.url} cannot be written: {error}") from error

    def sync(self, entry: Entry) -> None:
        """Let the manifest that counts survive a power loss; its job may have been killed.

        Raises UnsyncedCommitError.
        """
        if entry.manifest is None or not self.folder.store.is_disk:
            return
        with committed_syncs(self._numbered(entry.number).url):
            if entry.number != _NONE:
                self._child(MANIFESTS).sync()
            self.folder.sync()

    def remove_older(self, entry: Entry) -> None:
        """Remove the manifests before the one that counts; raise OSError if that fails.

        Unfinished manifests with such numbers are removed as well, as they come too late.
        """
        if entry.number == 0 and not self.folder.store.has_folders:
            return  # there is none before it, and none has a temporary name
        files = TableFiles(self.folder)
        for info in self._child(MANIFESTS).children():
            final = self.folder.store.final_name(info.base_name)
            match = MANIFEST_NAME.fullmatch(final)
            if match is not None and int(match[1]) < entry.number + (final != info.base_name):
                files.delete(self.folder.at(info.path))
        if self.folder.store.is_disk and entry.number != _NONE:
            files.delete(self._child(UNNUMBERED))

    def _numbered(self, number: int) -> Location:
        return self._child(f"{MANIFESTS}/{number:08}.json" if number != _NONE else UNNUMBERED)

    def _child(self, name: str) -> Location:
        return self.folder.child(name)

    def _newest_number(self) -> int:
        folder = self._child(MANIFESTS)
        try:
            names = [MANIFEST_NAME.fullmatch(info.base_name) for info in folder.children()]
        except OSError as error:
            raise CommitError(f"{folder.url} cannot be listed: {error}") from error
        return max((int(match[1]) for match in names if match is not None), default=_NONE)

    def _read(self, number: int) -> Manifest | None:
        location = self._numbered(number)
        try:
            return decode_manifest(location.read_bytes())
        except FileNotFoundError:
            return None
        except (ValueError, IsADirectoryError) as error:
            raise OutputError(
                f"{location.url} cannot be read as the list of what mrflight wrote ({error}); move "
                "the folder away, or choose another"
            ) from error
        except OSError as error:
            raise CommitError(f"{location.url} cannot be read: {error}") from error
