"""`mrflight.ingest`: runs a stream from Python."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from mrflight.config.job_file import load_job
from mrflight.events.recorder import Recorder
from mrflight.frontend.clear_errors import clear_errors
from mrflight.streams.stream_result import StreamResult
from mrflight.system.standard_streams import say


@clear_errors
def ingest(
    job_file: str | PathLike[str],
    overrides: Mapping[str, Any] | None = None,
    *,
    until_caught_up: bool = False,
    progress: bool = True,
    stop: threading.Event | None = None,
) -> StreamResult:
    """Run the stream in ``job_file`` until it is caught up or stopped, and return what it has done.

    ``overrides`` replaces values by dotted key: ``{"stream.commit": "1 s"}``. ``until_caught_up``:
    end at the offsets that are the ends of the topics now; otherwise the stream ends only if
    ``stream.mode`` is ``available`` or ``stop`` is set, by another thread: the batch that runs is
    committed first, however long that takes. ``progress``: show a line on stderr every few seconds.
    No signal handler is installed. A KeyboardInterrupt ends the stream at once, after the files of
    a batch that is not committed have been removed; its events are read again the next time.
    Raises JobError if the job or its input is wrong, and another MrflightError if the stream could
    not go on. What was committed stays.
    """
    from mrflight.streams.stream_session import StreamSession
    from mrflight.streams.stream_stop import StreamStop

    path = Path(job_file).resolve()
    spec = load_job(path, overrides)
    interrupts = StreamStop(threading.Event() if stop is None else stop)
    session = StreamSession(interrupts, _say if progress else _silent, owns_process=False)
    with Recorder() as events:
        return session.run(spec, path.parent, events, until_caught_up=until_caught_up)


def _say(text: str) -> None:
    say(f"{text}\n")


def _silent(text: str) -> None:
    return
