"""The networks that join hosts. The machine's own network is not touched."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from ipaddress import IPv4Address
from pathlib import Path

from experiments.chaos_processes import wait_until
from experiments.hosts.host import (
    ALL,
    HOST_BITS,
    NAMESPACES,
    Host,
    RunningHost,
    UnavailableError,
    remove,
    run_command,
)
from experiments.hosts.wire import TUN, Wire, open_tun

_CLONE_NEWNET = 0x40000000
DEVICE = "eth0"
_MTU = 1500
_QUEUE = 10_000
"""The packets that may wait for the wire: enough that it loses none by itself."""
_SWITCH = Host("switch", ALL[0].network)
"""Where the bridge is. It has no address."""
_TURN_TIMEOUT_S = 300.0
"""The limit for waiting for another run. It is more than one job may take."""

Addresses = Mapping[Host, Sequence[IPv4Address]]
"""The addresses of servers on each host, besides its own."""
Running = dict[Host, RunningHost]


@contextmanager
def hosts(addresses: Addresses, shared: Sequence[Path]) -> Iterator[Running]:
    """Create hosts that nothing joins, for the block.

    What a killed run has left is removed first. UnavailableError is raised if this machine or user
    cannot create them.
    """
    _check()
    with exclusive(), ExitStack() as stack:
        _remove_all()
        stack.callback(_remove_all)
        running: Running = {}
        for host in addresses:
            running[host] = RunningHost(host, shared)
            stack.callback(running[host].close)
        yield running


@contextmanager
def wired_hosts(
    addresses: Addresses, shared: Sequence[Path], seed: int, secret: bytes = b""
) -> Iterator[_Wired]:
    """Create hosts and a wire between them, which can be slow, lossy and cut."""
    with hosts(addresses, shared) as running:
        ends = {host.network: _tun_of(host) for host in running}
        with Wire(ends, seed, secret) as wire:
            for host in running:
                _up(host, addresses[host], "mtu", str(_MTU), "txqueuelen", str(_QUEUE))
            yield running, wire


_Wired = tuple[Running, Wire]


@contextmanager
def bridged_hosts(
    addresses: Addresses, shared: Sequence[Path], rate: str | None = None
) -> Iterator[Running]:
    """Create hosts that are joined by a bridge of the kernel.

    ``rate`` limits what each host sends, in the words of tc, such as "1gbit".
    """
    with hosts(addresses, shared) as running:
        run_command("ip", "netns", "add", _SWITCH.namespace)
        switch = ("ip", "-n", _SWITCH.namespace, "link")
        run_command(*switch, "add", "bridge", "type", "bridge")
        run_command(*switch, "set", "bridge", "up")
        for host in running:
            port = f"to-{host.name}"
            peer = ("peer", "name", DEVICE, "netns", host.namespace)
            run_command(*switch, "add", port, "type", "veth", *peer)
            run_command(*switch, "set", port, "master", "bridge", "up")
            _up(host, addresses[host])
            if rate is not None:
                _limit(host, rate)
        yield running


def _limit(host: Host, rate: str) -> None:
    bucket = ("rate", rate, "burst", "4mb", "latency", "20ms")
    where = ("qdisc", "add", "dev", DEVICE, "root")
    run_command("tc", "-n", host.namespace, *where, "tbf", *bucket)


def _check() -> None:
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        raise UnavailableError("it needs root, to make network namespaces")
    if shutil.which("ip") is None:
        raise UnavailableError("it needs the command ip, of the package iproute2")
    if shutil.which("nsenter") is None:
        raise UnavailableError("it needs the command nsenter, of the package util-linux")
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
            raise TimeoutError("another run of experiments.hosts does not end")
        yield


def _up(host: Host, addresses: Sequence[IPv4Address], *options: str) -> None:
    """Give the host's device its addresses, and turn it on."""
    own = ("ip", "-n", host.namespace)
    run_command(*own, "address", "add", f"{host.address}/{HOST_BITS}", "dev", DEVICE)
    for address in addresses:
        run_command(*own, "address", "add", f"{address}/32", "dev", DEVICE)
    run_command(*own, "link", "set", DEVICE, *options, "up")


def _tun_of(host: Host) -> int:
    """Return a tun device that a thread creates in the namespace; it never exists outside of it."""
    made: list[int] = []
    failed: list[OSError] = []

    def make() -> None:
        try:
            namespace = os.open(NAMESPACES / host.namespace, os.O_RDONLY)
            try:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(namespace, _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
                made.append(open_tun(DEVICE))
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


def _remove_all() -> None:
    for host in (*ALL, _SWITCH):
        remove(host)
