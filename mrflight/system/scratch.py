"""Private temporary folders that outlive no crash for long.

Each has a ``lock`` file, locked for as long as its process lives: the kernel
lets go of it when the process is gone, killed or not. Who starts next below
the same root removes the folders whose lock is free.

No folder is removed while it is made. A maker looks, once it has the lock,
whether the file is still there, and takes another name where somebody was
faster. So no lock on the root is needed, which on a shared ``/tmp`` would be
another user's file.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import secrets
import shutil
import threading
from pathlib import Path

from mrflight.system.closeable import Closes

log = logging.getLogger(__name__)

_NAME = re.compile(r"mrflight-[a-z]+-[A-Za-z0-9_]+")
_RANDOM_BYTES = 4
_LOCK = "lock"
_MARK = b"mrflight holds this folder while this file is locked; then it may be removed\n"


class ScratchFolder(Closes):
    """A folder ``mrflight-<kind>-<random>`` below ``root``, mode 0700, made when first asked for.

    It is removed with all that is in it by `close`, or, where its process was
    killed, by the next `remove_dead_folders`. Safe for many threads. A fork that
    keeps its copies of open files keeps the folder as well.
    """

    def __init__(self, kind: str, root: Path) -> None:
        self.kind = kind
        self.root = root
        self._making = threading.Lock()
        self._path: Path | None = None
        self._lock_file = -1

    @property
    def path(self) -> Path:
        """The folder; OSError where it cannot be made."""
        with self._making:
            while self._path is None:
                self._make()
            return self._path

    def close(self) -> None:
        """Remove the folder, where it was made."""
        with self._making:
            if self._path is not None:
                _remove(self._path)
                os.close(self._lock_file)
                self._path = None

    def _make(self) -> None:
        path = self.root / f"mrflight-{self.kind}-{secrets.token_hex(_RANDOM_BYTES)}"
        lock_file = -1
        try:
            path.mkdir(0o700)
            lock_file = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(lock_file, _MARK)
            if _lock(lock_file, path / _LOCK):
                self._path, self._lock_file = path, lock_file
        except FileExistsError:
            log.debug("%s is somebody else's", path)
        except BaseException:  # the disk is full, or has no locks; or an interrupt, at any moment
            _remove(path)
            raise
        finally:
            if self._path is None and lock_file >= 0:
                os.close(lock_file)


def remove_dead_folders(root: Path) -> list[Path]:
    """Remove the folders below ``root`` whose process is gone; those that were removed.

    Touched are folders of this user with a scratch folder's name and a lock
    file of ours that is not locked, and nothing else.
    """
    removed = []
    with os.scandir(root) as entries:
        candidates = [
            Path(entry.path)
            for entry in entries
            if _NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
        ]
    for folder in candidates:
        try:
            if folder.stat().st_uid == os.geteuid() and _remove_if_dead(folder):
                removed.append(folder)
        except OSError as error:  # gone meanwhile, or none of ours
            log.debug("%s is left alone: %s", folder, error)
    return removed


def _remove_if_dead(folder: Path) -> bool:
    lock_file = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        dead = os.pread(lock_file, len(_MARK), 0) == _MARK and _lock(lock_file, folder / _LOCK)
        if dead:
            log.info("removing %s, which a process left behind", folder)
            _remove(folder)
        return dead
    finally:
        os.close(lock_file)


def _lock(lock_file: int, path: Path) -> bool:
    """Whether the lock was free and is ours now, and still is that of the folder."""
    try:
        fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    try:
        return os.path.samestat(os.fstat(lock_file), path.stat())
    except FileNotFoundError:
        return False


def _remove(folder: Path) -> None:
    """Remove a folder whose lock is held; the lock file last, so that what fails is seen again."""
    try:
        while folder.exists():  # else a job's fork server was first
            try:
                _remove_entries(folder)
            except FileNotFoundError:  # who made it removes it as well, as DataFusion's threads do
                continue
            (folder / _LOCK).unlink(missing_ok=True)
            folder.rmdir()
    except OSError as error:
        log.warning("%s is not removed whole: %s", folder, error)


def _remove_entries(folder: Path) -> None:
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        elif entry.name != _LOCK:
            os.unlink(entry.path)
