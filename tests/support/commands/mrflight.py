"""Runs ``mrflight`` commands, each in a process of its own that need not import anything.

`mrflight` and `started` fork the command from the warm process of this worker, which takes a
quarter of the processor time of a new interpreter. Where a test asks for another environment than
the one that the warm process has imported its modules in, a new interpreter is started.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.support.commands.driver import shared_warm_driver
from tests.support.commands.warm_driver import ForkedDriver
from tests.support.suite.waiting import TooSlow, await_end, hang_s

_TABLES = ("pyiceberg.catalog.sql", "pyiceberg.io.pyarrow", "pyiceberg.table", "psycopg")

_LOADS = {
    "ingest": (
        "confluent_kafka.admin",
        *("mrflight.streams.stream_session", "mrflight.streams.stream_run"),
        *("mrflight.streams.delta_stream_table", "mrflight.streams.catalog_stream_tables"),
        *("mrflight.sources.kafka.kafka_source", "mrflight.sinks.iceberg.sink", *_TABLES),
    ),
    "sql": (
        *("pandas", "datafusion", "mrflight.compute.sql.physical.session", "mrflight.frontend.sql"),
        *("mrflight.frontend.dataset_builder", "mrflight.planner.sql_plan"),
        *("mrflight.frontend.printed_table", "rich.table"),
    ),
}
"""The modules that commands load while they run, by their first word."""

Process = subprocess.Popen[bytes] | ForkedDriver


def mrflight(
    *words: str | Path,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    input: str = "",
    module: str = "mrflight",
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and return its code and what it wrote.

    ``environment`` is what differs from this process's. Raises `TooSlow`.
    """
    with ExitStack() as stack:
        streams = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3)]
        streams[0].write(input)
        streams[0].seek(0)
        process = _start(words, cwd, environment, streams, module)
        try:
            code = await_end(process, command_line(words))
        except TooSlow as error:
            process.kill()
            process.wait()
            raise TooSlow(f"{error}; it said:\n{_text(streams[2])}") from None
        return subprocess.CompletedProcess(
            [*map(str, words)], code, _text(streams[1]), _text(streams[2])
        )


@dataclass
class Running:
    """A command that runs beside the test, with what it writes."""

    process: Process
    stdin: IO[str]
    stdout: IO[str]
    stderr: IO[str]
    words: str
    _read: dict[str, str] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def returncode(self) -> int | None:
        return self.process.returncode

    def poll(self) -> int | None:
        return self.process.poll()

    def wait(self, timeout: float | None = None) -> int:
        return self.process.wait(timeout)

    def send_signal(self, number: int) -> None:
        self.process.send_signal(number)

    def terminate(self) -> None:
        self.process.terminate()

    def kill(self) -> None:
        self.process.kill()

    def communicate(self) -> tuple[str, str]:
        """Return what it wrote to stdout and stderr, to their ends. Raises `TooSlow`."""
        self.stdin.close()
        readers = [
            threading.Thread(target=self._read_all, args=(name, stream), daemon=True)
            for name, stream in (("stdout", self.stdout), ("stderr", self.stderr))
        ]
        for reader in readers:
            reader.start()
        await_end(self.process, self.words)
        for reader in readers:
            reader.join(hang_s())
        return self._read["stdout"], self._read["stderr"]

    def _read_all(self, name: str, stream: IO[str]) -> None:
        self._read[name] = stream.read()


@contextmanager
def started(
    *words: str | Path,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    module: str = "mrflight",
) -> Iterator[Running]:
    """Start a command with pipes to it; it is killed at the end if it has not ended by itself."""
    with ExitStack() as stack:
        (their_in, stdin), (stdout, their_out), (stderr, their_err) = (os.pipe() for _ in range(3))
        theirs = [
            stack.enter_context(os.fdopen(each, mode))
            for each, mode in ((their_in, "r"), (their_out, "w"), (their_err, "w"))
        ]
        ours = [
            stack.enter_context(os.fdopen(each, mode, encoding="utf-8"))
            for each, mode in ((stdin, "w"), (stdout, "r"), (stderr, "r"))
        ]
        process = _start(words, cwd, environment, theirs, module)
        for stream in theirs:
            stream.close()
        try:
            yield Running(process, *ours, command_line(words))
        finally:
            process.kill()
            process.wait()


def command_line(words: tuple[str | Path, ...]) -> str:
    """Return the command as somebody types it."""
    return " ".join(["mrflight", *map(str, words)])


def _start(
    words: tuple[str | Path, ...],
    cwd: Path | None,
    environment: Mapping[str, str] | None,
    streams: list[IO[str]],
    module: str,
) -> Process:
    variables = {**os.environ, **(environment or {})}
    command = [module, *map(str, words)]
    stdin, stdout, stderr = (stream.fileno() for stream in streams)
    if (warm := shared_warm_driver()).takes(variables):
        loads = ("mrflight.frontend.cli", *_LOADS.get(str(words[0]) if words else "", ()))
        folder = cwd or Path.cwd()
        return warm.start_command(command, variables, (stdin, stdout, stderr), folder, loads)
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=cwd,
        env=variables,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
    )


def _text(stream: IO[str]) -> str:
    stream.seek(0)
    return stream.read()
