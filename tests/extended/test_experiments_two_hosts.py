"""Two hosts on this machine: a small run where that can be had, and else the reason in one line."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from experiments.two_hosts_conditions import CONDITIONS, SERVERS_REMOTE, baseline
from experiments.two_hosts_network import A, B, exclusive
from experiments.two_hosts_wire import Cut, CutTrigger, Impairment, Wire
from tests.support.experiments import PROGRAM_TIMEOUT_S, ROOT

NAMESPACES = [Path("/run/netns") / host.namespace for host in (A, B)]


def experiment(
    out: Path, *options: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it on next to nothing."""
    command = [sys.executable, "-m", "experiments.two_hosts", "--rounds", "1", "--rows", "50000"]
    return subprocess.run(
        [*command, "--out", str(out), "--data", str(out.with_name("data")), *options],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
    )


def missing() -> str | None:
    """A word of the reason why there cannot be two hosts, found out without the experiment."""
    if os.name != "posix" or os.geteuid() != 0:
        return "root"
    if shutil.which("ip") is None:
        return "iproute2"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "tun"
    if not os.access("/proc/sys/net/ipv4/conf/all/route_localnet", os.W_OK):
        return "route_localnet"
    probe = "mrflight-test-probe"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if made.returncode:
        return "ip netns add"
    subprocess.run(["ip", "netns", "delete", probe], check=True)
    return None


def test_lost_packets_and_a_partition_lose_no_row(tmp_path: Path) -> None:
    why = missing()
    names = ["loss 5 %", "driver from metadata for 5 s, map"]
    left = _left_by_a_killed_run() if why is None else None
    done = experiment(tmp_path / "out", "--conditions", ";".join(names))
    assert done.returncode == 0, done.stdout + done.stderr
    if why is not None:
        assert done.stdout.startswith("two_hosts is skipped: "), done.stdout
        assert why in done.stdout
        assert len(done.stdout.splitlines()) == 1
        return
    assert left is not None
    assert left.wait(0) == -signal.SIGKILL, "what a killed run had left goes on"
    loss, partition = json.loads((tmp_path / "out" / "two_hosts.json").read_text())["runs"]
    assert [loss["condition"], partition["condition"]] == names
    for run in (loss, partition):
        assert run["state"] == "committed", run
        assert (run["wrong"], run["leftovers"], run["missed"]) == ([], [], ""), run
        assert run["attempts"]["failed"] == 0, run
        # Each of two workers gets two maps of small files. One that waits for the network may have
        # got a speculative attempt.
        assert run["attempts"]["map"] >= 4, run
        assert run["attempts"]["reduce"] >= 20, run
    assert loss["lost"] > 0
    assert loss["retransmitted"] > 0
    assert partition["cut_off"] > 0
    assert partition["wall_s"] > 5.0, partition
    assert f"| {names[1]} |" in (tmp_path / "out" / "two_hosts.md").read_text()
    with exclusive():
        assert not any(path.exists() for path in NAMESPACES)


def _left_by_a_killed_run() -> subprocess.Popen[bytes]:
    """A host of before, and somebody who still runs there."""
    with exclusive():
        subprocess.run(["ip", "netns", "add", A.namespace], check=True)
        return subprocess.Popen(A.inside(["sleep", "1000"]))


def test_without_the_command_ip_it_is_skipped_in_one_line(tmp_path: Path) -> None:
    done = experiment(tmp_path / "out", environment={**os.environ, "PATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    reason = (
        "it needs the command ip, of the package iproute2"
        if os.geteuid() == 0
        else "it needs root, to make network namespaces"
    )
    assert done.stdout == f"two_hosts is skipped: {reason}\n"
    assert not (tmp_path / "out").exists()


@dataclass(frozen=True)
class Joined:
    """A wire between two sockets, which keep packets apart as tun devices do."""

    wire: Wire
    ends: tuple[socket.socket, socket.socket]

    def send(self, end: int, number: int = 0) -> None:
        """A packet from a host's own address to the other one's."""
        source, target = (A, B) if end == 0 else (B, A)
        self.ends[end].send(packet(source.address, target.address, number))

    def received(self, end: int) -> int:
        """The number of the next packet that comes out."""
        return self.ends[end].recv(1 << 16)[20]

    def is_quiet(self, end: int) -> bool:
        """Whether nothing has come out."""
        return not select.select([self.ends[end]], [], [], 0)[0]


def packet(source: IPv4Address, target: IPv4Address, number: int) -> bytes:
    return b"\x45" + bytes(11) + source.packed + target.packed + bytes([number])


@pytest.fixture
def joined() -> Iterator[Joined]:
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    descriptors = [os.dup(inner.fileno()) for _, inner in pairs]
    for descriptor in descriptors:
        os.set_blocking(descriptor, False)
    (outer_a, inner_a), (outer_b, inner_b) = pairs
    with outer_a, outer_b, inner_a, inner_b, Wire((descriptors[0], descriptors[1]), 1) as wire:
        for outer in (outer_a, outer_b):
            outer.settimeout(10)
        yield Joined(wire, (outer_a, outer_b))


def test_a_wire_passes_packets_on_in_both_directions(joined: Joined) -> None:
    joined.send(0, 7)
    assert joined.received(1) == 7
    joined.send(1, 8)
    assert joined.received(0) == 8
    assert joined.wire.counts.bytes == {
        (str(A.address), str(B.address)): 21,
        (str(B.address), str(A.address)): 21,
    }


def test_a_late_packet_comes_late_and_in_its_order(joined: Joined) -> None:
    joined.wire.apply(Impairment(delay_s=0.05))
    started = time.monotonic()
    for number in range(3):
        joined.send(0, number)
    assert [joined.received(1) for _ in range(3)] == [0, 1, 2]
    assert time.monotonic() - started >= 0.05


def test_as_many_packets_are_lost_as_were_to_be(joined: Joined) -> None:
    joined.wire.apply(Impairment(loss=0.5))
    for _ in range(200):
        joined.send(0)
    joined.wire.apply(Impairment())
    joined.send(0, 255)
    while joined.received(1) != 255:
        pass
    counts = joined.wire.counts
    assert counts.packets + counts.lost == 201
    assert 60 < counts.lost < 140


def test_an_armed_cut_comes_after_so_many_bytes_and_heals(joined: Joined) -> None:
    there, back = IPv4Network(A.address), IPv4Network(B.address)
    cut = Cut(A.network, B.network)
    joined.wire.arm(CutTrigger(cut, there, back, after_bytes=50, heals_after_s=0.2))
    for number in range(2):  # 42 bytes
        joined.send(0, number)
        assert joined.received(1) == number
    joined.send(1, 9)  # the other direction is not counted
    assert joined.received(0) == 9
    joined.send(0, 2)
    until = time.monotonic() + 10
    while not joined.wire.counts.cut_off:
        assert time.monotonic() < until
    assert joined.is_quiet(1)
    number = 3
    while joined.is_quiet(1):  # in one of these, as it would be sent again by TCP
        assert time.monotonic() < until
        joined.send(0, number)
    assert joined.wire.counts.cut_off >= 1
    assert joined.wire.cut_at is not None
    assert time.monotonic() - joined.wire.cut_at >= 0.2


def test_a_cut_parts_only_its_own_addresses() -> None:
    cut = Cut(B.network, SERVERS_REMOTE.first)
    first, other = SERVERS_REMOTE.data
    assert cut.separates(B.address, first)
    assert cut.separates(first, B.address)
    assert not cut.separates(B.address, other)
    assert not cut.separates(A.address, B.address)


def test_every_condition_has_one_to_be_held_against() -> None:
    for condition in CONDITIONS.values():
        against = baseline(condition.layout)
        assert against.layout == condition.layout
        assert against.cut_trigger({}) is None
        assert condition.layout.first.network_address in A.network
