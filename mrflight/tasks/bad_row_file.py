"""Writes the bad rows that one attempt of a map skips to a file, or keeps them for the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Self, TypeVar

import msgspec
import pyarrow as pa

from mrflight.errors import InputError
from mrflight.sinks.parts.open_files import translate_write_errors
from mrflight.sources.bad_rows import BadRow, BadRowLog, BadRowPolicy
from mrflight.storage.bad_rows_name import bad_rows_name
from mrflight.storage.deletion import delete_created
from mrflight.units import format_bytes

T = TypeVar("T")

_BUFFER_BYTES = 256 << 10

MAX_KEPT_BYTES = 64 << 20
"""A task returns at most so many bytes of bad rows to the driver, which holds all of a batch."""


class AttemptLog(BadRowLog):
    """Counts the bad rows of an attempt, and writes them if the policy has a folder.

    They are json objects, one per line, in a file that is only created if there are any. A context
    manager: if the attempt fails, its file is removed.
    """

    def __init__(
        self, policy: BadRowPolicy | None, map_id: int, attempt: int, shuffle_id: str
    ) -> None:
        super().__init__()
        folder = policy.folder if policy is not None else None
        self._keeps_rows = policy is not None and policy.keeps_rows
        self.needs_rows = folder is not None or self._keeps_rows
        self.kept: list[BadRow] = []
        """The rows that are returned to the driver."""
        self._kept_bytes = 0
        self._name = bad_rows_name(map_id, attempt, shuffle_id)
        self._location = None if folder is None else folder.child(self._name)
        self._stream: pa.NativeFile | None = None
        self._waiting = bytearray()

    @property
    def file(self) -> str | None:
        """The name of the file; None if there is none."""
        return self._name if self.rows and self._location is not None else None

    def add(self, count: int, describe: Callable[[], Iterable[BadRow]]) -> None:
        super().add(count, describe)
        if self._keeps_rows:
            self._keep(describe())
        if self._location is None:
            return
        for row in describe():
            self._waiting += msgspec.json.encode(row) + b"\n"
            if len(self._waiting) >= _BUFFER_BYTES:
                self._flush()

    def _keep(self, rows: Iterable[BadRow]) -> None:
        for row in rows:
            self._kept_bytes += row.size_bytes
            if self._kept_bytes > MAX_KEPT_BYTES:
                raise InputError(
                    f"{row.file}: more than {format_bytes(MAX_KEPT_BYTES)} of bad rows in one "
                    f"task, the last at {row.line}: {row.reason}; is the format right?"
                )
            self.kept.append(row)

    def finish_after(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items, and end the file before the end of the iteration is known."""
        yield from items
        if self.file is not None:
            self._flush()
            assert self._stream is not None
            assert self._location is not None
            with translate_write_errors(self._location):
                self._stream.close()
                self._location.sync()
                self._location.store.sync_names([self._location.path])

    def _flush(self) -> None:
        assert self._location is not None
        with translate_write_errors(self._location):
            if self._stream is None:
                self._stream = self._location.create()
            self._stream.write(bytes(self._waiting))
        self._waiting.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and self._stream is not None and self._location is not None:
            with suppress(OSError):
                self._stream.close()
            with suppress(OSError):
                delete_created(self._location)
