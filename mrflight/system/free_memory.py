"""How much memory is free for this process: on the machine, and in its containers.

A container is a control group with a limit, and groups lie in each other: what
is free is the least that any of them has left. The files are those of the
kernel's documents cgroup-v2 ("Memory Interface Files") and cgroup-v1/memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec


class _Version(msgspec.Struct, frozen=True):
    """Where control groups are mounted, and the names of a group's files."""

    mount: str
    controllers: str
    """What their line in ``/proc/self/cgroup`` names."""
    limit: str
    used: str
    idle: str
    """In ``memory.stat``: pages of files that nobody looks at, which are given back when needed."""


_VERSIONS = (
    _Version("sys/fs/cgroup", "", "memory.max", "memory.current", "inactive_file"),
    _Version(
        mount="sys/fs/cgroup/memory",
        controllers="memory",
        limit="memory.limit_in_bytes",
        used="memory.usage_in_bytes",
        idle="total_inactive_file",
    ),
)


def free_memory(root: Path = Path("/")) -> int:
    """Bytes that this process may still take; ``root`` has ``proc`` and ``sys`` below it."""
    left = [_of_group(group, version) for version in _VERSIONS for group in _groups(root, version)]
    return max(0, min([_of_machine(root), *(free for free in left if free is not None)]))


def _of_machine(root: Path) -> int:
    try:
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # no Linux
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _groups(root: Path, version: _Version) -> Iterator[Path]:
    """The folders of this process's group and of those around it, whether they are there or not.

    In a container its group may be mounted as the outermost while ``/proc`` tells its name on the
    host: then the folders in between are not there, and the outermost is the one.
    """
    mount = root / version.mount
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    name = PurePosixPath("/")
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if version.controllers in controllers.split(","):
            name = PurePosixPath(path)
    for group in (name, *name.parents):
        yield mount / group.relative_to("/")


def _of_group(folder: Path, version: _Version) -> int | None:
    """What is left of a group's limit; None without one."""
    try:
        limit = int((folder / version.limit).read_text())
        used = int((folder / version.used).read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return limit - used + int(stat.get(version.idle, 0))
    except (OSError, ValueError):  # no such file, or "max"
        return None
