"""Three hosts on this machine: a small run with TLS, in which one of them vanishes."""

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

from experiments.hosts.conditions import CONDITIONS, baseline
from experiments.hosts.host import ALL, A, B, C
from experiments.hosts.layouts import HEARTBEAT_TIMEOUT_S, SERVERS_REMOTE, WORKERS_APART
from experiments.hosts.network import bridged_hosts, exclusive
from experiments.hosts.wire import Cut, Impairment, Trigger, Wire
from tests.support.commands.experiments import PROGRAM_TIMEOUT_S, ROOT
from tests.support.faults.faulty_run import await_that
from tests.support.suite.waiting import hang_s

pytestmark = pytest.mark.soak

NAMESPACES = [Path("/run/netns") / host.namespace for host in ALL]


def experiment(
    out: Path, *options: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it on next to nothing."""
    command = [sys.executable, "-m", "experiments.hosts", "--rounds", "1", "--rows", "100000"]
    return subprocess.run(
        [*command, "--out", str(out), "--data", str(out.with_name("data")), *options],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
    )


def missing() -> str | None:
    """Why there cannot be hosts, found out without the experiment."""
    if os.name != "posix" or os.geteuid() != 0:
        return "hosts need root, to make network namespaces"
    if shutil.which("ip") is None:
        return "hosts need the command ip: apt-get install iproute2"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "hosts need /dev/net/tun"
    probe = ["unshare", "--net", "--mount", "--propagation", "private", "true"]
    made = subprocess.run(probe, capture_output=True, text=True)
    return f"hosts need namespaces: {made.stderr}" if made.returncode else None


@pytest.fixture
def needs_hosts() -> None:
    if (why := missing()) is not None:
        pytest.skip(why)


def test_a_job_over_three_hosts_outlives_one_of_them(needs_hosts: None, tmp_path: Path) -> None:
    names = ["none", "none, without TLS", "lost host of a data server, map"]
    left = _left_by_a_killed_run()
    done = experiment(tmp_path / "out", "--conditions", ";".join(names))
    assert done.returncode == 0, done.stdout + done.stderr
    assert left.wait(0) == -signal.SIGKILL, "what a killed run had left goes on"
    quiet, plain, lost = json.loads((tmp_path / "out" / "hosts.json").read_text())["runs"]
    assert [run["condition"] for run in (quiet, plain, lost)] == names
    for run in (quiet, plain, lost):
        assert run["state"] == "committed", run
        assert (run["wrong"], run["leftovers"], run["missed"]) == ([], [], ""), run
    assert quiet["attempts"]["failed"] == 0, quiet
    assert lost["attempts"]["map"] > quiet["attempts"]["map"], lost  # maps were run again
    assert lost["wall_s"] > HEARTBEAT_TIMEOUT_S, lost  # only the silence tells of the loss
    assert lost["cut_off"] > 0
    assert plain["in_clear"] > 0, "the wire would not see rows"
    assert quiet["in_clear"] == lost["in_clear"] == 0
    pairs = {tuple(pair.split()) for pair in quiet["crossed"]}
    driver = str(SERVERS_REMOTE.driver.address)
    assert {(driver, str(server)) for server in SERVERS_REMOTE.servers} <= pairs
    with exclusive():
        assert not any(path.exists() for path in NAMESPACES)


def test_lost_packets_and_a_partition_lose_no_row(needs_hosts: None, tmp_path: Path) -> None:
    names = ["loss 5 %", "driver from metadata for 5 s, map"]
    done = experiment(tmp_path / "out", "--conditions", ";".join(names))
    assert done.returncode == 0, done.stdout + done.stderr
    loss, partition = json.loads((tmp_path / "out" / "hosts.json").read_text())["runs"]
    assert [run["condition"] for run in (loss, partition)] == names
    for run in (loss, partition):
        assert run["state"] == "committed", run
        assert (run["wrong"], run["leftovers"], run["missed"]) == ([], [], ""), run
        assert run["attempts"]["map"] >= 4, run
        assert run["attempts"]["reduce"] >= 20, run
    assert loss["lost"] > 0
    assert loss["retransmitted"] > 0
    assert partition["cut_off"] > 0
    assert partition["wall_s"] > 5.0, partition


def test_workers_on_ray_that_are_cut_off_from_a_server_use_another(
    needs_hosts: None, tmp_path: Path
) -> None:
    name = "on Ray: workers from a data server, map"
    done = experiment(tmp_path / "out", "--conditions", name)
    assert done.returncode == 0, done.stdout + done.stderr
    (cut,) = json.loads((tmp_path / "out" / "hosts.json").read_text())["runs"]
    assert cut["state"] == "committed", cut
    assert (cut["wrong"], cut["leftovers"], cut["missed"]) == ([], [], ""), cut
    assert cut["in_clear"] == 0
    assert cut["attempts"]["failed"] == 0, "the first report is enough"
    assert any("run again, as their output was lost" in line for line in cut["driver_log"]), cut
    workers = {str(host.address) for host in WORKERS_APART.workers}
    called = {other for one, other in map(str.split, cut["crossed"]) if one in workers}
    assert {str(server) for server in WORKERS_APART.servers} <= called


def _left_by_a_killed_run() -> subprocess.Popen[bytes]:
    """A host of before, and somebody who still runs there."""
    with exclusive():
        subprocess.run(["ip", "netns", "add", A.namespace], check=True)
        return subprocess.Popen(["ip", "netns", "exec", A.namespace, "sleep", "1000"])


def test_without_the_command_ip_it_is_skipped_in_one_line(tmp_path: Path) -> None:
    done = experiment(tmp_path / "out", environment={**os.environ, "PATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    reason = (
        "it needs the command ip, of the package iproute2"
        if os.geteuid() == 0
        else "it needs root, to make network namespaces"
    )
    assert done.stdout == f"hosts is skipped: {reason}\n"
    assert not (tmp_path / "out").exists()


def test_no_two_hosts_share_files_or_addresses(needs_hosts: None, tmp_path: Path) -> None:
    with bridged_hosts({A: [], B: []}, [tmp_path]) as running:
        one, other = running[A], running[B]
        for name in ("/tmp/file", "/dev/shm/segment"):
            subprocess.run(one.inside(["touch", name]), check=True)
            assert one.files() == [name]
            assert other.files() == []
            assert not Path(name).exists()
            one.path(name).unlink()
        (tmp_path / "seen").touch()
        subprocess.run(other.inside(["test", "-e", str(tmp_path / "seen")]), check=True)
        read = "import socket; print(socket.create_server(('0.0.0.0', 7)).accept()[1][0])"
        server = subprocess.Popen(
            other.inside([sys.executable, "-c", read]), stdout=subprocess.PIPE, text=True
        )
        call = f"import socket; socket.create_connection(('{B.address}', 7))"
        await_that(
            lambda: subprocess.run(one.inside([sys.executable, "-c", call])).returncode == 0,
            "a connection",
        )
        assert server.communicate()[0].strip() == str(A.address)


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
    ends = {A.network: descriptors[0], B.network: descriptors[1]}
    with outer_a, outer_b, inner_a, inner_b, Wire(ends, 1) as wire:
        for outer in (outer_a, outer_b):
            outer.settimeout(hang_s())
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
    joined.wire.arm(Trigger(there, back, 50, cut, heals_after_s=0.2))
    for number in range(2):  # 42 bytes
        joined.send(0, number)
        assert joined.received(1) == number
    joined.send(1, 9)  # the other direction is not counted
    assert joined.received(0) == 9
    joined.send(0, 2)
    until = time.monotonic() + hang_s()
    while not joined.wire.counts.cut_off:
        assert time.monotonic() < until
    assert joined.is_quiet(1)
    number = 3
    while joined.is_quiet(1):  # in one of these, as it would be sent again by TCP
        assert time.monotonic() < until
        joined.send(0, number)
    assert joined.wire.counts.cut_off >= 1
    assert joined.wire.triggered_at is not None
    assert time.monotonic() - joined.wire.triggered_at >= 0.2


def test_a_cut_parts_only_its_own_addresses() -> None:
    first, other = SERVERS_REMOTE.data
    cut = Cut(C.network, SERVERS_REMOTE.first)
    assert cut.separates(C.address, first)
    assert cut.separates(first, C.address)
    assert not cut.separates(C.address, other)
    assert not cut.separates(A.address, C.address)


def test_every_condition_has_one_to_be_held_against() -> None:
    for condition in CONDITIONS.values():
        against = baseline(condition.layout)
        assert against.layout == condition.layout
        assert against.trigger({}) is None
        assert len(condition.layout.addresses) == (5 if condition.layout.is_on_ray else 3)
