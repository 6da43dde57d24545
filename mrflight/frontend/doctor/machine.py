"""What the machine, and the limits of its containers, give a job."""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from mrflight.frontend.doctor.finding import Finding
from mrflight.system.free_memory import free_memory
from mrflight.units import format_bytes

_GIB = 2**30
_LITTLE_MEMORY = _GIB
_LITTLE_SPACE = 2 * _GIB
_FEW_FILES = 4096
"""A data server has a connection to each worker, and a file for each partition that it spills."""
_LITTLE_SHM = _GIB
"""Docker gives a container 64 MiB."""
_IN_MEMORY = {"tmpfs", "ramfs"}


class Machine(msgspec.Struct, frozen=True):
    """What was read of a machine."""

    free_memory: int
    """The bytes that this process may still take, by the machine and by its control groups."""
    open_files: int
    """How many files a process may open, once it has raised its own limit; -1 if any number."""
    shared_memory_error: str
    """Why processes cannot share memory; empty if they can."""
    shm: int | None
    """The size of ``/dev/shm``, in bytes; None if there is none."""
    cores: int

    @classmethod
    def here(cls) -> Machine:
        """Return what this machine has."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return cls(
            free_memory=free_memory(),
            open_files=-1 if hard == resource.RLIM_INFINITY else hard,
            shared_memory_error=_shared_memory_error(),
            shm=_size_of("/dev/shm"),
            cores=len(os.sched_getaffinity(0)),
        )


def machine(found: Machine, *, with_ray: bool = False) -> Iterator[Finding]:
    """Yield what was found of a machine, for a job on Ray or for one that is not."""
    yield Finding("cores", "ok", f"{found.cores}")
    yield _memory(found.free_memory)
    yield _open_files(found.open_files)
    yield _shared_memory(found.shared_memory_error)
    if with_ray:
        yield _shm(found.shm)


def memory_of_job(total: int, free: int) -> Finding:
    """Return what is to be said of a job that takes so much memory, of which so much is free."""
    what = f"{format_bytes(total)}, and {format_bytes(free)} are free"
    if total <= free:
        return Finding("memory of the job", "ok", what)
    return Finding(
        "memory of the job",
        "warning",
        f"{what}, so it may be killed",
        "set cluster.memory or cluster.workers to less, stop other programs, or raise the memory "
        "limit of the container",
    )


class Folder(msgspec.Struct, frozen=True):
    """What was read of a folder for temporary files."""

    path: Path
    error: str
    """Why no file can be written there; empty if one can."""
    free: int = 0
    file_system: str = ""

    @classmethod
    def at(cls, path: Path) -> Folder:
        """Return what the folder has, or the folder in which it would be made."""
        there = path
        while not there.exists() and there != there.parent:
            there = there.parent
        try:
            with tempfile.TemporaryFile(dir=there) as file:
                file.write(b"\0")
                file.flush()
            space = os.statvfs(there)
        except OSError as error:
            return cls(path, str(error.strerror))
        return cls(path, "", space.f_bavail * space.f_frsize, file_system(there))


def scratch(found: Folder, setting: str) -> Finding:
    """Return what was found of the folder that a job spills to, which ``setting`` chooses."""
    check = f"temporary files in {found.path}"
    if found.error:
        return Finding(check, "problem", found.error, f"set {setting} to a folder of a local disk")
    free = f"{format_bytes(found.free)} free"
    if found.file_system in _IN_MEMORY:
        return Finding(
            check,
            "warning",
            f"{free} of memory ({found.file_system}), so what is spilled there frees no memory",
            f"set {setting} to a folder of a local disk",
        )
    if found.free < _LITTLE_SPACE:
        return Finding(
            check,
            "warning",
            f"only {free}; a job whose rows do not fit in memory spills them all",
            f"free some space, or set {setting} to a folder of a larger disk",
        )
    return Finding(check, "ok", free)


def file_system(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Return the type of the file system of a folder, such as ``ext4``; empty if it is unknown."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # this is not Linux
        return ""
    found, longest = "", -1
    for line in lines:
        _, mount, kind, *_ = line.split()
        folder = Path(mount.replace("\\040", " "))
        if path.resolve().is_relative_to(folder) and len(folder.parts) >= longest:
            found, longest = kind, len(folder.parts)
    return found


def _memory(free: int) -> Finding:
    what = f"{format_bytes(free)} free for this process, of which a job takes half"
    if free >= _LITTLE_MEMORY:
        return Finding("memory", "ok", what)
    return Finding(
        "memory",
        "warning",
        what,
        "stop other programs, raise the memory limit of the container, or expect that jobs spill "
        "early; cluster.memory sets what a job takes",
    )


def _open_files(limit: int) -> Finding:
    if 0 <= limit < _FEW_FILES:
        return Finding(
            "open files",
            "warning",
            f"a process may open {limit:,}, which is too few for servers of many workers, or for "
            "many partitions",
            "raise the hard limit to 65,536: ulimit -Hn, LimitNOFILE= of systemd, or --ulimit "
            "nofile= of Docker",
        )
    return Finding("open files", "ok", "any number" if limit < 0 else f"{limit:,} in a process")


def _shared_memory(error: str) -> Finding:
    if error:
        return Finding(
            "shared memory",
            "warning",
            f"there is none ({error}), so rows go through sockets, which takes longer",
            "use a Python that was built for a newer Linux (glibc 2.27 or later), and a container "
            "that permits memfd_create",
        )
    return Finding("shared memory", "ok", "processes of this machine share rows")


def _shm(size: int | None) -> Finding:
    if size is None or size < _LITTLE_SHM:
        has = "there is none" if size is None else f"it has {format_bytes(size)}"
        return Finding(
            "/dev/shm",
            "warning",
            f"{has}; Ray keeps its objects there, or else on a disk",
            "give the container more: --shm-size=4g of Docker, or a volume of medium Memory in "
            "Kubernetes",
        )
    return Finding("/dev/shm", "ok", f"{format_bytes(size)}, for objects of Ray")


def _shared_memory_error() -> str:
    from mrflight.system.shared_memory import IS_SUPPORTED, Segment

    if not IS_SUPPORTED:
        return "this Python lacks memfd_create"
    try:
        Segment.of([memoryview(b"doctor")])
    except OSError as error:
        return str(error.strerror)
    return ""


def _size_of(path: str) -> int | None:
    try:
        space = os.statvfs(path)
    except OSError:
        return None
    return space.f_blocks * space.f_frsize
