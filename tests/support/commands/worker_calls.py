"""The calls that tests of executors send to workers."""

from __future__ import annotations

import itertools
import os
import re
import signal
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mrflight.errors import JobFileError

_BLOCK_BYTES = 2**20
_staying: list[npt.NDArray[np.uint8]] = []


def raise_with_note() -> None:
    error = JobFileError("shuffle.memory: no")
    error.add_note("a note")
    raise error


class WithoutItsArgumentsError(Exception):
    """Can be pickled, but not made again."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def raise_what_cannot_be_sent() -> None:
    raise WithoutItsArgumentsError(1, 2)


def wait_at_the_gate(folder: Path) -> str:
    """Say that the call runs, and read what comes through the gate."""
    with open(folder / "running", "w"):
        pass
    return (folder / "gate").read_text()


def write_on(folder: str) -> None:
    """Write files into a folder, one after the other and without an end."""
    (Path(folder) / str(os.getpid())).touch()
    for number in itertools.count():
        (Path(folder) / f"{os.getpid()}-{number % 100}").write_text("x")


def kill_at_the_gate(folder: Path) -> None:
    """Do as `wait_at_the_gate`, and then kill the process."""
    wait_at_the_gate(folder)
    os.kill(os.getpid(), signal.SIGKILL)


def be_killed_in_the_answer(folder: Path) -> None:
    """Leave an answer half sent, and a child at the gate that holds on to the channel."""
    os.write(_channel(), struct.pack("!i", 1_000) + b"the first bytes")
    if os.fork() == 0:
        try:
            wait_at_the_gate(folder)
        finally:
            os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


def _channel() -> int:
    """The only descriptor of a worker that is a socket, as long as it has asked no server."""
    (channel,) = (
        int(entry)
        for entry in os.listdir("/proc/self/fd")
        if Path(f"/proc/self/fd/{entry}").is_symlink()
        and os.readlink(f"/proc/self/fd/{entry}").startswith("socket:")
    )
    return channel


def leave_free(size_bytes: int) -> tuple[int, int]:
    """Free so much between what stays; what the process held of its own before, and after."""
    before = own_bytes()
    blocks = [np.ones(_BLOCK_BYTES, np.uint8) for _ in range(size_bytes // _BLOCK_BYTES)]
    _staying.append(np.ones(_BLOCK_BYTES, np.uint8))
    blocks.clear()
    return before, own_bytes()


def own_bytes() -> int:
    """Return the memory of this process without pages of files."""
    rollup = Path("/proc/self/smaps_rollup").read_text()
    return sum(int(kb) * 1024 for kb in re.findall(r"^Anonymous: +(\d+)", rollup, re.MULTILINE))
