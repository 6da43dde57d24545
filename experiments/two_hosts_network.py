"""Two hosts on one machine: network namespaces that only a wire joins.

The machine's own network is not touched. Without TLS and tokens mrflight's servers listen on
loopback only. So both hosts have addresses of 127.0.0.0/8, which the kernel is told to route in the
two namespaces.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from experiments.chaos_processes import wait_until
from experiments.two_hosts_wire import TUN, Wire, open_tun

_CLONE_NEWNET = 0x40000000
_NAMESPACES = Path("/run/netns")
_ROUTE_LOCALNET = "/proc/sys/net/ipv4/conf/all/route_localnet"
_DEVICE = "wire"
_MTU = 1500
_QUEUE = 10_000
"""The packets that may wait for the wire: enough that it loses none by itself."""
_COMMAND_TIMEOUT_S = 20.0
_END_TIMEOUT_S = 10.0
_TURN_TIMEOUT_S = 300.0
"""The limit for waiting for another run. It is more than one job may take."""


class UnavailableError(Exception):
    """This machine or this user cannot create two hosts."""


@dataclass(frozen=True)
class Host:
    """One side of the wire. ``network`` contains all its addresses."""

    namespace: str
    network: IPv4Network

    @property
    def address(self) -> IPv4Address:
        """The source address of calls from this host."""
        return self.network[1]

    def inside(self, command: list[str]) -> list[str]:
        """Return the command line that runs ``command`` on this host, with the same process id."""
        return ["ip", "netns", "exec", self.namespace, *command]

    def processes(self) -> list[int]:
        """Return the ids of all processes on this host."""
        return [int(pid) for pid in _ip("netns", "pids", self.namespace).split()]


A = Host("mrflight-two-hosts-a", IPv4Network("127.77.1.0/24"))
B = Host("mrflight-two-hosts-b", IPv4Network("127.77.2.0/24"))
_BOTH = "16"
"""The length of the prefix that the addresses of both hosts share."""


@contextmanager
def two_hosts(seed: int, extra: dict[Host, list[IPv4Address]]) -> Iterator[Wire]:
    """Create `A` and `B` with their ``extra`` addresses, and the wire between them, for the block.

    What a killed run has left is removed first. UnavailableError is raised if this machine or user
    cannot create them.
    """
    _check()
    with exclusive():
        _remove()
        try:
            ends = tuple(_end(host, extra.get(host, [])) for host in (A, B))
            with Wire((ends[0], ends[1]), seed) as wire:
                yield wire
        finally:
            _remove()


def retransmitted(host: Host) -> int:
    """Return how many TCP segments a host has retransmitted so far."""
    snmp = _run(host.inside(["cat", "/proc/net/snmp"]))
    names, values = (line.split()[1:] for line in snmp.splitlines() if line.startswith("Tcp:"))
    return int(dict(zip(names, values, strict=True))["RetransSegs"])


def _check() -> None:
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        raise UnavailableError("it needs root, to make network namespaces")
    if shutil.which("ip") is None:
        raise UnavailableError("it needs the command ip, of the package iproute2")
    if not TUN.exists():
        raise UnavailableError(f"it needs tun devices, and there is no {TUN}")


@contextmanager
def exclusive() -> Iterator[None]:
    """Hold the lock that allows one run at a time.

    A killed run has released it. TimeoutError is raised if it takes too long.
    """
    with TUN.open("rb") as lock:

        def is_ours() -> bool:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        if not wait_until(is_ours, _TURN_TIMEOUT_S):
            raise TimeoutError("another run of two hosts does not end")
        yield


def _end(host: Host, extra: list[IPv4Address]) -> int:
    """Create a host and its end of the wire, and return the descriptor of its device."""
    _ip("netns", "add", host.namespace)
    tun = _tun_of(host)
    try:
        _run(host.inside(["sh", "-c", f"echo 1 > {_ROUTE_LOCALNET}"]))
        own = ("-n", host.namespace)
        _ip(*own, "link", "set", "lo", "up")
        _ip(*own, "link", "set", _DEVICE, "mtu", str(_MTU), "txqueuelen", str(_QUEUE), "up")
        _ip(*own, "route", "del", "local", "127.0.0.0/8", "dev", "lo", "table", "local")
        _ip(*own, "address", "add", f"{host.address}/{_BOTH}", "dev", _DEVICE)
        for address in extra:
            _ip(*own, "address", "add", f"{address}/32", "dev", _DEVICE)
    except BaseException:
        os.close(tun)
        raise
    return tun


def _tun_of(host: Host) -> int:
    """Return a tun device that a thread creates in the namespace; it never exists outside of it."""
    made: list[int] = []
    failed: list[OSError] = []

    def make() -> None:
        try:
            namespace = os.open(_NAMESPACES / host.namespace, os.O_RDONLY)
            try:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(namespace, _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
                made.append(open_tun(_DEVICE))
            finally:
                os.close(namespace)
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=make, name="namespace")
    thread.start()
    thread.join()
    if failed:
        raise UnavailableError(f"no tun device can be made: {failed[0]}") from failed[0]
    return made[0]


def _remove() -> None:
    """Kill all processes on both hosts, and remove the hosts."""
    for host in (A, B):
        if not (_NAMESPACES / host.namespace).exists():
            continue

        def is_empty(host: Host = host) -> bool:
            pids = host.processes()
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not pids

        wait_until(is_empty, _END_TIMEOUT_S)
        _ip("netns", "delete", host.namespace)


def _ip(*words: str) -> str:
    return _run(["ip", *words])


def _run(command: list[str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=_COMMAND_TIMEOUT_S
    )
    if done.returncode:
        why = done.stderr.strip().splitlines()
        raise UnavailableError(f"{' '.join(command)}: {why[-1] if why else done.returncode}")
    return done.stdout
