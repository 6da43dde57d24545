"""Writes to stdout and stderr, which may be full, closed, or not there at all."""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import suppress
from typing import TextIO

EXIT_RESULT_LOST = 3
"""What was asked for is done, but the answer on stdout could not be written. This is no code of a
failed job, because a script that runs failed jobs again would commit this one twice."""


def print_answer(text: str) -> int:
    """Print on stdout and return the exit code; say so on stderr if it cannot be written."""
    try:
        write(f"{text}\n", sys.stdout)
    except OSError as error:
        say(f"mrflight: the answer could not be written to stdout: {error}\n")
        return EXIT_RESULT_LOST
    return 0


def say(text: str) -> None:
    """Write to stderr. A reader who is gone does not change the outcome of the command."""
    with suppress(OSError):
        write(text, sys.stderr)


def write(text: str, stream: TextIO) -> None:
    """Write and flush; OSError if the stream cannot be written."""
    try:
        if isinstance(stream, _MissingStream):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        stream.write(text)
        stream.flush()
    except OSError:
        # Otherwise Python would fail again, with an exit code of its own, when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise


class _MissingStream(io.TextIOWrapper):
    """Stands for a stream that the process was started without; what is written to it is lost."""


def open_missing_streams() -> None:
    """Open /dev/null in place of stdout or stderr if the process has none (``>&-``).

    Otherwise the next file that is opened would get its number, and be written to.
    """
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            # dup2 does not make the file inheritable if it was opened with this number.
            os.set_inheritable(number, True)
            null = open(number, "wb", closefd=False)  # noqa: SIM115
            setattr(sys, name, _MissingStream(null, encoding="utf-8"))
