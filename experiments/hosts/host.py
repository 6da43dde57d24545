"""A host: a network namespace of this machine, with files of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from experiments.chaos_processes import wait_until
from experiments.datasets import REPOSITORY
from experiments.hosts import own_files

NAMESPACES = Path("/run/netns")
_COMMAND_TIMEOUT_S = 20.0
_END_TIMEOUT_S = 10.0


class UnavailableError(Exception):
    """This machine or this user cannot create hosts."""


@dataclass(frozen=True)
class Host:
    """A host that can be created. ``network`` contains all its addresses."""

    name: str
    network: IPv4Network

    @property
    def namespace(self) -> str:
        return f"mrflight-host-{self.name}"

    @property
    def address(self) -> IPv4Address:
        """The source address of calls from this host."""
        return self.network[1]


_NUMBERS = {"a": 2, "b": 3, "c": 4, "d": 6, "e": 7}
"""Those of A and B, and of D and E, differ in the last bit, so that one network contains both."""
A, B, C, D, E = (Host(name, IPv4Network(f"10.77.{i}.0/24")) for name, i in _NUMBERS.items())
ALL = (A, B, C, D, E)
HOST_BITS = 16
"""The length of the prefix that the addresses of all hosts share."""


class RunningHost:
    """A host that exists.

    A process that waits for the end of its input holds the mount namespace, in which the folders
    ``own_files.OWN`` are empty at first and seen by no other host.
    """

    def __init__(self, host: Host, shared: Sequence[Path]) -> None:
        """Raise UnavailableError if it cannot be created. ``shared`` are seen by all hosts."""
        self.host = host
        run_command("ip", "netns", "add", host.namespace)
        run_command("ip", "-n", host.namespace, "link", "set", "lo", "up")
        kept = [REPOSITORY, Path(sys.prefix), Path(sys.base_prefix), *shared]
        command = [
            *("nsenter", f"--net={NAMESPACES / host.namespace}"),
            *("unshare", "--mount", "--propagation", "private"),
            *(sys.executable, own_files.__file__, *map(str, kept)),
        ]
        self._holder = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self._holder.stdout is not None
        if not self._holder.stdout.readline():
            _, why = self._holder.communicate()
            raise UnavailableError(f"no mount namespace can be made: {why.decode().strip()}")

    def inside(self, command: Sequence[str]) -> list[str]:
        """Return the command line that runs ``command`` on this host, with the same process id."""
        return [
            *("nsenter", f"--net={NAMESPACES / self.host.namespace}"),
            *(f"--mount=/proc/{self._holder.pid}/ns/mnt", f"--wdns={REPOSITORY}", "--"),
            *command,
        ]

    def path(self, path: str) -> Path:
        """Return where this process finds a file of the host."""
        return Path(f"/proc/{self._holder.pid}/root") / path.lstrip("/")

    def files(self) -> list[str]:
        """Return all files, sockets and segments in the host's own folders."""
        found = []
        for own in own_files.OWN:
            device = self.path(own).stat().st_dev
            for folder, folders, names in os.walk(self.path(own)):
                folders[:] = [  # the shared ones are of another device
                    name for name in folders if Path(folder, name).lstat().st_dev == device
                ]
                found += [Path(folder, name) for name in names]
        return [str(path).removeprefix(str(self.path("/"))) for path in found]

    def processes(self) -> list[int]:
        """Return the ids of the processes that were started on this host."""
        return [pid for pid in processes_of(self.host) if pid != self._holder.pid]

    def kill_all(self) -> None:
        """Kill all its processes at once, as when a machine loses power."""
        _kill_all(self.processes)

    def close(self) -> None:
        """End the host with all its processes, and forget its files."""
        self.kill_all()
        self._holder.communicate()
        remove(self.host)


def remove(host: Host) -> None:
    """Kill all processes on a host, and remove it if it exists."""
    if (NAMESPACES / host.namespace).exists():
        _kill_all(lambda: processes_of(host))
        run_command("ip", "netns", "delete", host.namespace)


def processes_of(host: Host) -> list[int]:
    """Return the ids of all processes on a host."""
    return [int(pid) for pid in run_command("ip", "netns", "pids", host.namespace).split()]


def retransmitted(host: RunningHost) -> int:
    """Return how many TCP segments a host has retransmitted so far."""
    snmp = run_command(*host.inside(["cat", "/proc/net/snmp"]))
    names, values = (line.split()[1:] for line in snmp.splitlines() if line.startswith("Tcp:"))
    return int(dict(zip(names, values, strict=True))["RetransSegs"])


def run_command(*words: str) -> str:
    """Return what a command prints; raise UnavailableError if it fails."""
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=_COMMAND_TIMEOUT_S
    )
    if done.returncode:
        why = done.stderr.strip().splitlines()
        raise UnavailableError(f"{' '.join(words)}: {why[-1] if why else done.returncode}")
    return done.stdout


def _kill_all(processes: Callable[[], list[int]]) -> None:
    def are_gone() -> bool:
        pids = processes()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not pids

    wait_until(are_gone, _END_TIMEOUT_S)
