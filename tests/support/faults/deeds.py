"""The faults: what is done to a process of a job, or to the data that it has stored."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.support.commands.process_memory import flip_in_memory
from tests.support.faults import faulty_job
from tests.support.faults import faulty_run as faults
from tests.support.faults.failing_disk import flip_byte, spill_files, truncate_file
from tests.support.faults.faulty_run import FaultyRun

Deed = Callable[[FaultyRun, psutil.Process], None]

PAUSE_S = 1.0

ROOM_BYTES = 1_000
"""The largest file on a full disk: enough for messages, and too little for any data."""
ROOM_OF_DRIVER_BYTES = 2_000
"""Its result, which is a file here, is larger; the smallest that it would write else is not."""


def pause(run: FaultyRun, victim: psutil.Process) -> None:
    faults.stop(victim)
    run.go_on()
    time.sleep(PAUSE_S)  # that long is the fault
    victim.resume()


# Disks that are full


def fill_disk(victim: psutil.Process) -> None:
    """Until there is `room_again`: see `tests.support.faults.failing_disk.full_disk`."""
    _, hard = resource.prlimit(victim.pid, resource.RLIMIT_FSIZE)
    is_driver = not victim.name().startswith("mrflight-")
    room = ROOM_OF_DRIVER_BYTES if is_driver else ROOM_BYTES
    resource.prlimit(victim.pid, resource.RLIMIT_FSIZE, (room, hard))


def room_again(victim: psutil.Process) -> None:
    _, hard = resource.prlimit(victim.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(victim.pid, resource.RLIMIT_FSIZE, (hard, hard))


# Blocks that are damaged, where a row lies that only one block has


def corrupt_in_memory(run: FaultyRun, victim: psutil.Process) -> None:
    assert flip_in_memory(victim, faulty_job.bytes_in(6)) >= 1


def damage_on_disk(victim: psutil.Process, damage: Callable[[Path, int], None]) -> None:
    """Do it to a data server's file, once the row has been spilled."""
    wanted = faulty_job.bytes_in(6)

    def found() -> list[tuple[Path, int]]:
        files = ((path, path.read_bytes().find(wanted)) for path in spilled_by(victim))
        return [(path, at) for path, at in files if at >= 0]

    ((path, at),) = faults.await_that(found, "the row on the disk")
    damage(path, at)


def spilled_by(server: psutil.Process) -> list[Path]:
    """The spill files of one data server, which has the lock of their folder open."""
    locks = [Path(file.path) for file in server.open_files() if file.path.endswith("/lock")]
    (folder,) = [lock.parent for lock in locks if lock.parent.name.startswith("mrflight-spill-")]
    return [path for path in spill_files(folder.parent) if folder in path.parents]


# Journals


def journal_of(run: FaultyRun) -> Path:
    """Return the log of the embedded metadata server's journal, which has all of its events."""
    (path,) = run.temporary.glob("mrflight-*/metadata.journal-wal")
    return path


def damage_journal(
    run: FaultyRun, server: psutil.Process, damage: Callable[[Path], object]
) -> None:
    """Kill the metadata server, which writes nothing any more when the journal is damaged."""
    faults.stop(server)
    damage(journal_of(run))
    faults.kill(server)


def tear(journal: Path) -> None:
    """Leave a part of an append that was not finished, and so was not confirmed to anybody."""
    with journal.open("ab") as file:
        file.write(bytes(30))


def cut(journal: Path) -> None:
    """Cut off the end of the last event, as if it had not been confirmed."""
    truncate_file(journal, journal.stat().st_size - 10)


def flip_first(journal: Path) -> None:
    """Change a byte of the first event, that a data server has joined."""
    flip_byte(journal, 60)


DO: dict[str, Deed] = {
    "kill": lambda run, victim: faults.kill(victim),
    "stop": lambda run, victim: faults.stop(victim),
    "pause": pause,
    "full disk": lambda run, victim: fill_disk(victim),
    "corrupt in memory": corrupt_in_memory,
    "corrupt on disk": lambda run, victim: damage_on_disk(victim, flip_byte),
    "truncate on disk": lambda run, victim: damage_on_disk(victim, truncate_file),
    "tear journal": lambda run, victim: damage_journal(run, victim, tear),
    "cut journal": lambda run, victim: damage_journal(run, victim, cut),
    "corrupt journal": lambda run, victim: damage_journal(run, victim, flip_first),
}
