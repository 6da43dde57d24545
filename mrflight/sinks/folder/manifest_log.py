"""``_mrflight/00000003.json``: the manifests of a folder, of which the highest number counts.

Each is put only where there is none, as the entries of a Delta log are, so that of two jobs one
is first and the other looks again. It goes on from the one before, with every run in it, and those
below the newest can go. Then their numbers are free, and a put that stood still may take one, late:
so whoever has put one looks whether the newest knows it, and only then it counts.
"""

from __future__ import annotations

import msgspec

from mrflight.errors import CommitError, OutputError
from mrflight.sinks.commit.job_files import MANIFEST_NAME, MANIFESTS, UNNUMBERED
from mrflight.sinks.folder.manifest import Manifest, decoded, encoded
from mrflight.storage import Location

_NONE = -1
_MAX_READS = 30
"""How often the newest may be gone, for a newer one, once it is read."""


class Entry(msgspec.Struct, frozen=True):
    """What counts in a folder at a moment."""

    number: int
    """-1 where nothing is numbered."""
    manifest: Manifest | None
    """None where there is none at all."""


class ManifestLog(msgspec.Struct, frozen=True):
    """Of one folder."""

    folder: Location

    def newest(self) -> Entry:
        """The one that counts.

        OutputError where it is none of ours, CommitError where the store fails.
        """
        for _ in range(_MAX_READS):
            number = self._newest_number()
            if number == _NONE and not self.folder.store.is_disk:
                return Entry(number, None)
            manifest = self._read(number)
            # An unnumbered one goes after the first number is there.
            if manifest is not None or (number == _NONE and self._newest_number() == _NONE):
                return Entry(number, manifest)
        raise CommitError(
            f"{self._child(MANIFESTS).url}: other jobs were faster {_MAX_READS} times; "
            "run the job again"
        )

    def put(self, number: int, manifest: Manifest) -> None:
        """Put one where there is none; FileExistsError where there is, of many one succeeds.

        CommitError where the store fails, which may be after it is there.
        """
        location = self._numbered(number)
        try:
            location.put_if_absent(encoded(manifest))
        except FileExistsError:
            raise
        except OSError as error:
            self._child(MANIFESTS).delete_empty_folder()
            raise CommitError(f"{location.url} cannot be written: {error}") from error

    def remove_older(self, entry: Entry) -> None:
        """Remove what is before a manifest that counts; OSError where that cannot be.

        Also what others have begun to write with such numbers: they are too late.
        """
        if entry.number == 0 and not self.folder.store.has_folders:
            return  # nothing is, nor has a name before its own
        for info in self._child(MANIFESTS).children():
            final = self.folder.store.final_name(info.base_name)
            match = MANIFEST_NAME.fullmatch(final)
            if match is not None and int(match[1]) < entry.number + (final != info.base_name):
                self.folder.at(info.path).delete_file()
        if self.folder.store.is_disk and entry.number != _NONE:
            self._child(UNNUMBERED).delete_file()

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
            return decoded(location.read_bytes())
        except FileNotFoundError:
            return None
        except (ValueError, IsADirectoryError) as error:
            raise OutputError(
                f"{location.url} cannot be read as the list of what mrflight wrote ({error}); move "
                "the folder away, or choose another"
            ) from error
        except OSError as error:
            raise CommitError(f"{location.url} cannot be read: {error}") from error
