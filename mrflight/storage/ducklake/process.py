"""The parent's side of the child process that runs SQL in DuckDB."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import threading
import time
from typing import Any

from mrflight.storage.ducklake import child
from mrflight.system.closeable import Closeable

MAX_LINE_BYTES = 64 << 20
"""The longest request or answer."""
CALL_TIMEOUT_S = 600.0
"""The time for an answer if the job has no timeout."""
_CONFLICTS = (
    "transaction conflict",
    "database is locked",
    "could not set lock",
    "could not serialize",
    "duplicate key value",
    "already exists",
    "deadlock detected",
    "failed to commit ducklake transaction",
)
"""Parts of messages of DuckDB, SQLite and PostgreSQL that mean that another writer was faster."""

_OUTAGES = (
    "unable to connect to postgres",
    "server closed the connection",
    "terminating connection",
    "the database system is",
    "no connection to the server",
)
"""Parts of messages of the client of PostgreSQL that mean that the server is away, or starting."""

_CERTAIN = ("transaction conflict", "is locked", "could not set lock")

_REFUSED = re.compile(r"authentication failed|(role|database) .* does not exist|no pg_hba")
"""What PostgreSQL answers to a client that has to change its address."""

Rows = list[list[Any]]


class LakeError(Exception):
    """A statement failed. Its callers say what that means for the job."""

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind

    @property
    def is_conflict(self) -> bool:
        """Whether the same statements may succeed a moment later."""
        text = str(self).lower()
        return any(part in text for part in _CONFLICTS)

    @property
    def is_certain(self) -> bool:
        """Whether a failed commit has surely not taken effect."""
        text = str(self).lower()
        return any(part in text for part in _CERTAIN)

    @property
    def is_outage(self) -> bool:
        """Whether the server of the catalog cannot be reached for now."""
        text = str(self).lower()
        return any(part in text for part in _OUTAGES) and not _REFUSED.search(text)

    @property
    def needs_httpfs(self) -> bool:
        """Whether the files of the lake are in a bucket, which DuckDB cannot read yet."""
        return "requires the extension httpfs" in str(self)

    @property
    def is_missing(self) -> bool:
        """Whether there is no lake in the catalog yet."""
        return "creating a new DuckLake is explicitly disabled" in str(self)


class LakeProcessLostError(LakeError):
    """The child process did not answer. Whether the statement took effect is not known."""


class LakeProcess(Closeable):
    """A child process with DuckDB, which ends with this process.

    A child that does not answer in time is killed, and each later call raises
    LakeProcessLostError.
    """

    def __init__(self, python: str) -> None:
        """Start the child, and wait for nothing."""
        self._python = python
        self._loaded: set[str] = set()
        self._lock = threading.Lock()
        self._child = subprocess.Popen(
            [python, "-I", child.__file__, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for the driver, which ends what it has begun
        )

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def is_alive(self) -> bool:
        """Whether the child has not ended."""
        return self._child.poll() is None

    def run(self, sql: str, timeout_s: float = CALL_TIMEOUT_S) -> Rows:
        """Run a statement, and return its rows with JSON's types.

        Raises LakeError if it fails, and LakeProcessLostError if there is no answer.
        """
        with self._lock:
            return self._call({"sql": sql}, timeout_s)

    def load(self, *extensions: str, timeout_s: float = CALL_TIMEOUT_S) -> bool:
        """Load what the child has not loaded yet; return whether that was anything.

        Raises as `run` does.
        """
        with self._lock:
            new = [name for name in extensions if name not in self._loaded]
            try:
                if new:
                    self._call({"load": new}, timeout_s)
            except LakeProcessLostError:
                raise
            except LakeError as error:
                raise LakeError(
                    f"{self._python} cannot load DuckDB with its extensions {', '.join(new)}: "
                    f"{error}",
                    error.kind,
                ) from None
            self._loaded.update(new)
            return bool(new)

    def close(self) -> None:
        """End the child."""
        self._child.kill()
        self._child.wait()
        self._close_pipes()

    def disown(self) -> None:
        """Forget the child in a fork of the process that has started it."""
        self._child.returncode = 0
        self._close_pipes()

    def _close_pipes(self) -> None:
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                stream.close()

    def _call(self, request: dict[str, Any], timeout_s: float) -> Rows:
        line = json.dumps(request).encode() + b"\n"
        if len(line) > MAX_LINE_BYTES:
            raise LakeError(f"a statement of {len(line):,} bytes is too long for the catalog")
        try:
            answer = json.loads(self._exchange(line, time.monotonic() + timeout_s))
        except (OSError, ValueError) as error:
            self.close()
            raise LakeProcessLostError(f"the process of the catalog was lost: {error}") from error
        except BaseException:  # an interrupt: a later call must not read this answer
            self.close()
            raise
        if "error" in answer:
            raise LakeError(answer["error"], answer.get("kind", ""))
        rows: Rows = answer["rows"]
        return rows

    def _exchange(self, line: bytes, deadline: float) -> bytes:
        """Send a line, and return the next one; raise OSError without an answer in time."""
        process = self._child
        assert process.stdin is not None
        assert process.stdout is not None
        rest = memoryview(line)
        while rest:
            rest = rest[process.stdin.write(rest) :]
        readable = select.poll()
        readable.register(process.stdout, select.POLLIN)
        answer = bytearray()
        while not answer.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not readable.poll(left * 1000):
                raise TimeoutError("it did not answer in time")
            received = os.read(process.stdout.fileno(), 1 << 20)
            if not received:
                raise OSError("it has ended")
            answer += received
            if len(answer) > MAX_LINE_BYTES:
                raise OSError(f"its answer is longer than {MAX_LINE_BYTES:,} bytes")
        return bytes(answer)
