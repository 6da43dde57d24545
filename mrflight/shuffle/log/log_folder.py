"""The folder of a data server's event logs, which outlives its processes."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import threading
from contextlib import suppress
from pathlib import Path

from mrflight.errors import JobFileError
from mrflight.ids import ShuffleKey
from mrflight.shuffle.log.durable_log import DurableLog
from mrflight.shuffle.wire.log_rights import LogId
from mrflight.system.closeable import Closeable

_ID = "store-id"
_COPY = ".copy-"
_MODE = 0o700


class LogFolder(Closeable):
    """The logs below one folder, each in a folder ``<name>:<id>`` of its own. Thread-safe.

    Whoever may list the folder learns no secret, and nobody else may read the logs.

    Its ``store`` is a random id that the folder keeps, by which the metadata server knows it again
    when a server comes back at another location. Raises JobFileError if another process has the
    folder, or if it cannot be used.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = threading.Lock()
        self._open: dict[ShuffleKey, DurableLog] = {}
        try:
            root.mkdir(mode=_MODE, parents=True, exist_ok=True)
            with suppress(PermissionError):  # a volume may be root's
                root.chmod(_MODE)
            self._claim = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.store = _store_id(root / _ID)
            for left in root.glob(f"{_COPY}*"):
                shutil.rmtree(left)
        except BlockingIOError as error:
            raise JobFileError(
                f"--log-dir {root} belongs to another data server that runs; give this one a "
                "folder of its own"
            ) from error
        except OSError as error:
            raise JobFileError(f"--log-dir {root}: {error}") from error

    def open(self, key: ShuffleKey) -> DurableLog:
        """Return a log, which is empty if there was none; the folder closes it."""
        with self._lock:
            if key not in self._open:
                path = self._path(key)
                before = self.root / str(key)  # with its secret, as folders were called at first
                if before.exists() and not path.exists():
                    os.rename(before, path)
                    os.fsync(self._claim)
                self._open[key] = DurableLog(path)
            return self._open[key]

    def begin_copy(self) -> DurableLog:
        """Return an empty log, for `finish_copy` once it is complete."""
        return DurableLog(self.root / f"{_COPY}{secrets.token_hex(8)}")

    def finish_copy(self, key: ShuffleKey, copy: DurableLog) -> None:
        """Put a copy that is complete in the place of the log."""
        copy.close()
        with self._lock:
            known = self._open.pop(key, None)
            if known is not None:
                known.close()
            path = self._path(key)
            shutil.rmtree(path, ignore_errors=True)
            os.rename(copy.folder, path)
            os.fsync(self._claim)

    def forget(self, key: ShuffleKey) -> None:
        """Close a log, so that it is read from its files again when it is opened."""
        with self._lock:
            known = self._open.pop(key, None)
        if known is not None:
            known.close()

    def remove(self, key: ShuffleKey) -> None:
        """Delete a log."""
        self.forget(key)
        for path in (self._path(key), self.root / str(key)):
            shutil.rmtree(path, ignore_errors=True)

    def size_bytes(self) -> int:
        """Return the bytes of the logs that are open."""
        with self._lock:
            return sum(each.size_bytes for each in self._open.values())

    def close(self) -> None:
        with self._lock:
            for each in self._open.values():
                each.close()
            self._open.clear()
        os.close(self._claim)

    def _path(self, key: ShuffleKey) -> Path:
        """Return the folder of a log; raise ProtocolError for a name that is none."""
        return self.root / str(LogId.of(ShuffleKey.parse(str(key))))


def _store_id(path: Path) -> str:
    if not path.exists():
        new = path.with_name(f"{_ID}.new")
        new.write_text(secrets.token_hex(8))
        with new.open("rb") as file:
            os.fsync(file.fileno())
        os.rename(new, path)
    return path.read_text().strip()
