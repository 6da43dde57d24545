"""Temporary folders of mrflight, which do not stay behind for long if their process is killed.

Each folder has a file ``lock`` that is locked for as long as its process lives. The kernel releases
the lock when the process is gone, even if it was killed. The next process that uses the same root
removes the folders whose lock is free.

A folder is never removed while it is being made: once its maker has the lock, it checks that the
file is still there, and takes another name if another process was faster. So the root itself needs
no lock, which on a shared ``/tmp`` would be another user's file.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import stat
import threading
from pathlib import Path

from mrflight.system.closeable import Closeable
from mrflight.system.parent_watch import ParentWatch

log = logging.getLogger(__name__)

_NAME = re.compile(r"mrflight-[a-z]+-[A-Za-z0-9_]+")
_RANDOM_BYTES = 4
_LOCK = "lock"
_MARK = b"mrflight holds this folder while this file is locked; then it may be removed\n"

_SOCKET_PATH = re.compile(r"[A-Za-z0-9/._~-]+")  # the characters that a location takes unquoted
_MAX_SOCKET_BYTES = len("/mrflight-sockets-12345678/metadata.sock") + 7
_MAX_PATH_BYTES = 107
"""The kernel's limit for the path of a unix socket."""


class ScratchFolder(Closeable):
    """A folder ``mrflight-<kind>-<random>`` below ``root``, with mode 0700.

    It is made when its path is first asked for. `close` removes it with all its contents; if its
    process was killed, the next `remove_dead_folders` does. It may be used by several threads. A
    fork that keeps copies of its parent's open files keeps the folder, too.
    """

    def __init__(self, kind: str, root: Path) -> None:
        self.kind = kind
        self.root = root
        self._making = threading.Lock()
        self._path: Path | None = None
        self._lock_file = -1

    @property
    def path(self) -> Path:
        """The folder; raises OSError if it cannot be made."""
        with self._making:
            while self._path is None:
                self._make()
            return self._path

    def close(self) -> None:
        """Remove the folder if it was made."""
        with self._making:
            if self._path is not None:
                _remove(self._path)
                os.close(self._lock_file)
                self._path = None

    def _make(self) -> None:
        path = self.root / f"mrflight-{self.kind}-{os.urandom(_RANDOM_BYTES).hex()}"
        lock_file = -1
        try:
            path.mkdir(0o700)
            lock_file = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(lock_file, _MARK)
            if _lock(lock_file, path / _LOCK):
                self._path, self._lock_file = path, lock_file
        except FileExistsError:
            log.debug("%s belongs to another process", path)
        except BaseException:  # the disk is full or has no locks, or an interrupt came
            _remove(path)
            raise
        finally:
            if self._path is None and lock_file >= 0:
                os.close(lock_file)


class SocketFolder(Closeable):
    """A job's own folder for sockets, the metadata server's journal, logs and the parent watch.

    It is made at once, with mode 0700, after the folders of dead processes have been removed. It
    is in the system's temporary folder, or in /tmp if a unix socket there would have a path that is
    too long or needs quoting.
    """

    def __init__(self) -> None:
        root = short_root(_MAX_SOCKET_BYTES)
        remove_dead_folders(root)
        self._folder = ScratchFolder("sockets", root)
        try:
            self.path = self._folder.path
            self.parent_watch = ParentWatch(self.path / "parent.lock")
        except BaseException:  # an interrupt, too, leaves nothing behind
            self._folder.close()
            raise

    def close(self) -> None:
        """Remove the folder; processes that still watch this one end."""
        self._folder.close()
        self.parent_watch.close()


def temporary_folder() -> Path:
    """Return the system's folder for temporary files.

    It is the one that `tempfile.gettempdir` finds. But that tries by writing a file, which stays if
    the process ends meanwhile.
    """
    named = (os.environ.get(variable) for variable in ("TMPDIR", "TEMP", "TMP"))
    for folder in filter(None, (*named, "/tmp", "/var/tmp", "/usr/tmp")):
        if os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
            return Path(folder).absolute()
    return Path.cwd()


def short_root(inside_bytes: int) -> Path:
    """Return the system's temporary folder, or /tmp if socket paths below it would be too long.

    ``inside_bytes`` is the length of such a path from that folder on.
    """
    root = str(temporary_folder())
    is_short = len(os.fsencode(root)) + inside_bytes <= _MAX_PATH_BYTES
    return Path(root if is_short and _SOCKET_PATH.fullmatch(root) else "/tmp")


def remove_dead_folders(root: Path) -> list[Path]:
    """Remove the folders below ``root`` whose process is gone, and return their paths.

    It only touches folders of this user that have the name of a scratch folder and contain
    mrflight's lock file, unlocked.
    """
    with os.scandir(root) as entries:
        candidates = [Path(entry.path) for entry in entries if _NAME.fullmatch(entry.name)]
    return [folder for folder in candidates if remove_if_dead(folder)]


def remove_if_dead(folder: Path) -> bool:
    """Remove one such folder if its process is gone; return whether it was removed."""
    try:
        found = folder.lstat()
        is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
        return is_ours and _remove_if_dead(folder)
    except OSError as error:  # it is gone by now, or is not mrflight's
        log.debug("%s is left alone: %s", folder, error)
        return False


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
    """Take the lock if it is free; return whether it was, and still is the lock of the folder."""
    try:
        fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    try:
        return os.path.samestat(os.fstat(lock_file), path.stat())
    except FileNotFoundError:
        return False


def _remove(folder: Path) -> None:
    """Remove a folder whose lock is held.

    The lock file goes last, so that a folder that cannot be removed is found again.
    """
    try:
        while folder.exists():  # the job's fork server may have removed it
            try:
                _remove_entries(folder)
            except FileNotFoundError:  # its maker removes it too, as DataFusion's threads do
                continue
            (folder / _LOCK).unlink(missing_ok=True)
            folder.rmdir()
    except OSError as error:
        log.warning("%s could not be removed completely: %s", folder, error)


def _remove_entries(folder: Path) -> None:
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        elif entry.name != _LOCK:
            os.unlink(entry.path)
