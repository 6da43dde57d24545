"""How much memory is free for this process, on the machine and in its containers.

A container is a control group with a limit. Control groups are nested, so the free memory is the
least that any of them has left. The files are described in the kernel's documents cgroup-v2
("Memory Interface Files") and cgroup-v1/memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec


class _Version(msgspec.Struct, frozen=True):
    """A version of control groups: where they are mounted, and the names of a group's files."""

    mount: str
    controllers: str
    """The controller that their line in ``/proc/self/cgroup`` names."""
    limit: str
    used: str
    idle: str
    """The line of ``memory.stat`` for pages of unused files, which are freed when needed."""


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
    """Return how many bytes this process may still take.

    The folders ``proc`` and ``sys`` are below ``root``.
    """
    left = [
        _group_free(group, version) for version in _VERSIONS for group in _groups(root, version)
    ]
    return max(0, min([_machine_free(root), *(free for free in left if free is not None)]))


def _machine_free(root: Path) -> int:
    try:
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # this is not Linux
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _groups(root: Path, version: _Version) -> Iterator[Path]:
    """Yield the folders of this process's group and of its parents; not all may exist.

    In a container its group may be mounted as the root group, while ``/proc`` has its name on the
    host. Then the folders in between do not exist, and the root folder is that of the group.
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


def _group_free(folder: Path, version: _Version) -> int | None:
    """Return what is left of a group's limit, or None if it has no limit."""
    try:
        limit = int((folder / version.limit).read_text())
        used = int((folder / version.used).read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return limit - used + int(stat.get(version.idle, 0))
    except (OSError, ValueError):  # there is no such file, or it says "max"
        return None
