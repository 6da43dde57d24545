"""What workers print comes line by line, whole, and in the order of each worker."""

from __future__ import annotations

import os
import random
import re
import sys
import threading
from pathlib import Path

import pytest

from mrflight.runtime.local.executor import LocalExecutor
from mrflight.runtime.local.worker_output import WorkerOutput
from mrflight.system.fork_server.client import ForkServer
from mrflight.system.scratch import SocketFolder

SEED = 5


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.mark.parametrize(
    ("writes", "expected"),
    [
        ([b"one\ntwo\n"], ["one", "two"]),
        ([b"o", b"n", b"e\n", b"\n"], ["one", ""]),
        ([b"one\nhalf of two"], ["one", "half of two"]),
        ([b"  0%|\r 50%|\r100%|\r\nready\r\n"], ["100%|", "ready"]),
        ([b"caf\xc3", b"\xa9\n\xff\n"], ["café", "\ufffd"]),
        ([], []),
    ],
)
def test_lines_are_whole(writes: list[bytes], expected: list[str], lines: list[str]) -> None:
    with WorkerOutput(lines.append) as output, open(output.open(), "wb", buffering=0) as pipe:
        pipe.writelines(writes)
    assert lines == expected


def test_a_long_line_comes_in_pieces(lines: list[str]) -> None:
    with WorkerOutput(lines.append) as output, open(output.open(), "wb") as pipe:
        pipe.write(b"x" * 300_000 + b"\n")
    assert "".join(lines) == "x" * 300_000
    assert max(map(len, lines)) <= 2**17


def test_lines_of_several_workers_do_not_mix(lines: list[str]) -> None:
    def write(worker: int) -> None:
        sizes = random.Random(SEED + worker)
        data = b"".join(b"%d: %d\n" % (worker, number) for number in range(300))
        while data:
            size = sizes.randint(1, 20)
            os.write(pipes[worker], data[:size])
            data = data[size:]
        os.close(pipes[worker])

    with WorkerOutput(lines.append) as output:
        pipes = [output.open() for _ in range(3)]
        threads = [threading.Thread(target=write, args=[worker]) for worker in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for worker in range(3):
        mine = [line for line in lines if line.startswith(f"{worker}: ")]
        assert mine == [f"{worker}: {number}" for number in range(300)]
    assert len(lines) == 900


def test_a_process_that_a_worker_has_left_does_not_delay_the_end(lines: list[str]) -> None:
    output = WorkerOutput(lines.append)
    pipe = output.open()
    os.write(pipe, b"begun\nnot ended")
    output.close()
    output.close()
    assert lines == ["begun", "not ended"]
    with pytest.raises(BrokenPipeError):
        os.write(pipe, b"more\n")
    os.close(pipe)


def print_and_end(number: int) -> None:
    """Print on both streams, and end without a line end."""
    print(f"{number} to stdout")  # noqa: T201
    print(f"{number} to stderr", file=sys.stderr)  # noqa: T201
    os.write(1, f"{number} ends".encode())
    os._exit(3)


def test_workers_print_to_the_output_even_as_they_die(
    lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[4]))
    with (
        ForkServer() as fork_server,
        SocketFolder() as folder,
        LocalExecutor(
            1, fork_server, folder.parent_watch.path, show_output=lines.append
        ) as executor,
    ):
        for number in range(2):  # the second one runs in another process
            error = executor.submit(print_and_end, number).exception()
            assert re.search("exited with code 3", str(error))
    for number in range(2):
        mine = [line for line in lines if line.startswith(f"{number} ")]
        assert mine == [f"{number} {what}" for what in ("to stdout", "to stderr", "ends")]
    assert len(lines) == 6
