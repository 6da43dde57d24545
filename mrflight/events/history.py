"""The history of a job: a file of events, one in each line, as JSON."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import get_args

import msgspec

from mrflight.errors import InputError
from mrflight.events.job_view import JobView
from mrflight.events.kinds import AnyEvent, AttemptEnded, JobBegan
from mrflight.system.closeable import Closeable

log = logging.getLogger(__name__)

SUFFIX = ".jsonl"

_FLUSH_EVERY_S = 0.5
"""What a driver that is killed has not written yet is at most so old."""
_BUFFER_BYTES = 2**18
_MAX_LINE_BYTES = 2**24
"""A longer line than any that is written."""


class _Tag(msgspec.Struct):
    """The kind of an event."""

    event: str


class HistoryWriter(Closeable):
    """Writes events to a file. An error of the disk ends the history, and not the job."""

    def __init__(self, file: BufferedWriter) -> None:
        """``file`` is closed with this."""
        self._file: BufferedWriter | None = file
        self._encode = msgspec.json.Encoder().encode
        self._flushed_at = 0.0

    @classmethod
    def create(cls, path: Path) -> HistoryWriter:
        """Write to a new file; raises OSError if it cannot be made, or exists."""
        return cls(BufferedWriter(FileIO(path, "xb"), _BUFFER_BYTES))

    def write(self, event: AnyEvent) -> None:
        """Write an event, and flush it with those before unless that was done just now."""
        if self._file is None:
            return
        try:
            self._file.write(self._encode(event) + b"\n")
            if event.at - self._flushed_at >= _FLUSH_EVERY_S or not isinstance(event, AttemptEnded):
                self._flushed_at = event.at
                self._file.flush()
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """Write what is buffered. May be called twice."""
        if self._file is not None:
            try:
                self._file.close()
                self._file = None
            except OSError as error:
                self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        file, self._file = self._file, None
        if file is not None:
            log.warning("the history %s ends here, as it cannot be written: %s", file.name, error)
            file.raw.close()  # without another try to write


def read_history(path: Path) -> Iterator[AnyEvent]:
    """Yield the events of a file.

    A driver that was killed may leave a last line that is not whole, which is left out. So are
    kinds of events that only a later version of mrflight knows. Raises InputError for a file that
    is no history, or is damaged.
    """
    decoder = msgspec.json.Decoder(AnyEvent)
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(_MAX_LINE_BYTES):
                number += 1
                if (event := _decode(decoder, line, f"{path}, line {number}")) is None:
                    continue
                if number == 1 and not isinstance(event, JobBegan):
                    raise InputError(f"{path} is not the history of a job: it does not begin one")
                yield event
    except OSError as error:
        raise InputError(f"the history {path} cannot be read: {error.strerror}") from error


def read_view(path: Path) -> JobView:
    """Return the state of a job at the end of its history; raises InputError as `read_history`."""
    view = JobView()
    for event in read_history(path):
        try:
            view.add(event)
        except KeyError as error:
            raise InputError(
                f"the history {path} is damaged: stage {error} has not begun"
            ) from None
    if view.began is None:
        raise InputError(f"the history {path} is empty")
    return view


def _decode(decoder: msgspec.json.Decoder[AnyEvent], line: bytes, where: str) -> AnyEvent | None:
    """Return the event of a line; None if it is to be left out."""
    is_whole = line.endswith(b"\n")
    try:
        return decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if not is_whole and len(line) < _MAX_LINE_BYTES:
            return None  # the driver was killed while it wrote this
        if _is_of_a_later_version(line):
            return None
        raise InputError(f"{where} is not an event: {error}") from error


def _is_of_a_later_version(line: bytes) -> bool:
    try:
        return msgspec.json.decode(line, type=_Tag).event not in _TAGS
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


_TAGS = {kind.__struct_config__.tag for kind in get_args(AnyEvent)}
