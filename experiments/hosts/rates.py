"""Measure the bytes per second between two hosts through the shuffle, beside iperf3.

    python -m experiments.hosts.rates [--rounds N] [--links 1gbit,10gbit,none] [--out FOLDER]

Two hosts are joined by a bridge of the kernel. ``tc`` limits what each of them sends; ``none`` is
no limit. One host has a data server, the other has two processes that write rows of lineitem's
shape into it, and then read them. This is measured with TLS, where both sides verify certificates,
and without. iperf3 sends over two connections before and after each of these. All take turns. A
ratio is that of the bytes per second on the link to the mean of the two iperf3 around it. The rows,
as Arrow data, have more bytes than the link, because blocks are packed. Processor time is that of
both hosts for a GB of rows.

It needs root, ip, tc, nsenter and iperf3 (`apt-get install iperf3`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from experiments import report
from experiments.datasets import REPOSITORY, WORK
from experiments.hosts.certificates import JOB, paths
from experiments.hosts.cluster import Cluster, started
from experiments.hosts.host import A, C, run_command
from experiments.hosts.layouts import Layout
from experiments.hosts.network import DEVICE, Running, bridged_hosts
from experiments.hosts.run import shared_folder

LAYOUT = Layout("rates", A.network[5], (A.network[10],))
SENDERS = 2
MEMORY = "6 GiB"
_IPERF_S = 2.0
NO_LIMIT = "none"
BATCHES = {"1gbit": 8, "10gbit": 24, NO_LIMIT: 24}
"""The batches of each sender, of 20 MB each: for at least a second."""


@dataclass(frozen=True)
class Rate:
    """A transfer in one direction: bytes per second, and processor seconds for a GB of rows."""

    link: str
    way: str
    direction: str
    bytes_per_s: float
    cpu_s_per_gb: float
    rows_bytes_per_s: float = 0.0
    """Those of the rows as Arrow data, unless it is iperf3."""
    iperf3_bytes_per_s: float = 0.0
    """That of iperf3 before and after it, if it is not iperf3 itself."""


def iperf3(link: str, running: Running, *, reverse: bool) -> Rate:
    """Return what iperf3 sends from host C to A, or the other way."""
    words = [*("iperf3", "-c", str(A.address), "-J", "-t", str(_IPERF_S), "-P", str(SENDERS))]
    if reverse:
        words.append("-R")
    done = subprocess.run(running[C].inside(words), capture_output=True, check=True)
    end = json.loads(done.stdout)["end"]
    used = end["cpu_utilization_percent"]
    rate = end["sum_received"]["bits_per_second"] / 8
    cores = (used["host_total"] + used["remote_total"]) / 100
    return Rate(link, "iperf3", _direction(reverse), rate, cores / rate * 1e9)


def _direction(reverse: bool) -> str:
    return "get" if reverse else "put"


@contextmanager
def iperf3_server(running: Running) -> Iterator[None]:
    """Run the server of iperf3 on host A."""
    command = running[A].inside(["iperf3", "-s", "--forceflush"])
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            while b"listening" not in server.stdout.readline():
                assert server.poll() is None, "iperf3 -s did not start"
            yield
        finally:
            server.kill()


def shuffle(link: str, running: Running, cluster: Cluster, *, tls: bool) -> list[Rate]:
    """Return what the shuffle moves from host C to A, and then the other way."""
    files = list(paths(JOB).values()) if tls else []
    words = ["-m", "experiments.hosts.sender", cluster.metadata, str(BATCHES.get(link, 24)), *files]
    environment = {**cluster.environment, "PYTHONPATH": str(REPOSITORY)}
    pipe = subprocess.PIPE
    senders = [
        subprocess.Popen(
            running[C].inside([sys.executable, *words]), env=environment, stdin=pipe, stdout=pipe
        )
        for _ in range(SENDERS)
    ]
    try:
        for sender in senders:
            assert sender.stdout is not None
            assert sender.stdout.readline() == b"ready\n"
        return [
            Rate(
                link,
                "TLS" if tls else "plain",
                _direction(reverse),
                *_phase(senders, cluster, lambda: _on_link(running)),
            )
            for reverse in (False, True)
        ]
    finally:
        for sender in senders:
            sender.communicate()


def _phase(
    senders: list[subprocess.Popen[bytes]], cluster: Cluster, on_link: Callable[[], int]
) -> tuple[float, float, float]:
    """Return the bytes per second on the link, processor seconds for a GB, and bytes of rows."""
    before, used_s = on_link(), -_server_cpu_s(cluster)
    for sender in senders:
        assert sender.stdin is not None
        sender.stdin.write(b"\n")
        sender.stdin.flush()
    took = [json.loads(sender.stdout.readline()) for sender in senders if sender.stdout]
    size, seconds = sum(one["bytes"] for one in took), max(one["seconds"] for one in took)
    used_s += sum(one["cpu_s"] for one in took) + _server_cpu_s(cluster)
    return (on_link() - before) / seconds, used_s / size * 1e9, size / seconds


def _on_link(running: Running) -> int:
    """Return the bytes that host C has sent and received."""
    lines = run_command(*running[C].inside(["cat", "/proc/net/dev"])).splitlines()
    (counts,) = (line.partition(":")[2].split() for line in lines if DEVICE in line)
    return int(counts[0]) + int(counts[8])


def _server_cpu_s(cluster: Cluster) -> float:
    return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in cluster.pids)


def a_round(link: str, folder: Path, ways: Sequence[bool]) -> list[Rate]:
    """Return the rates of one round over new hosts; ``ways`` says which have TLS, in turn."""
    found: list[Rate] = []
    limit = None if link == NO_LIMIT else link
    with bridged_hosts(LAYOUT.addresses, [folder], limit) as running, iperf3_server(running):
        around = [[iperf3(link, running, reverse=reverse) for reverse in (False, True)]]
        for tls in ways:
            name = folder / f"servers-{len(list(folder.iterdir()))}"
            with started(LAYOUT, running, name, tls=tls, memory=MEMORY) as cluster:
                rates = shuffle(link, running, cluster, tls=tls)
            around.append([iperf3(link, running, reverse=reverse) for reverse in (False, True)])
            for rate, *others in zip(rates, *around[-2:], strict=True):
                mean = statistics.mean(other.bytes_per_s for other in others)
                found.append(Rate(**{**asdict(rate), "iperf3_bytes_per_s": mean}))
    return [*found, *(rate for pair in around for rate in pair)]


def page(rates: Sequence[Rate]) -> str:
    """Return Markdown: a row per link, way and direction."""
    heads = ("link", "way", "direction", "MB/s on the link", "of iperf3", "MB/s of rows")
    lines = [f"| {' | '.join(heads)} | core-seconds per GB of rows |", "|---" * 7 + "|"]
    for key in sorted({(rate.link, rate.direction, rate.way) for rate in rates}):
        of = [rate for rate in rates if (rate.link, rate.direction, rate.way) == key]
        ratios = [one.bytes_per_s / one.iperf3_bytes_per_s for one in of if one.iperf3_bytes_per_s]
        link, direction, way = key
        cells = [
            f"{statistics.median(one.bytes_per_s for one in of) / 1e6:,.0f}",
            report.median_and_range(ratios) if ratios else "",
            f"{statistics.median(one.rows_bytes_per_s for one in of) / 1e6:,.0f}" if ratios else "",
            f"{statistics.median(one.cpu_s_per_gb for one in of):.2f}",
        ]
        lines.append(f"| {link} | {way} | {direction} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--links", default=",".join(BATCHES))
    parser.add_argument("--out", type=Path, default=WORK / "hosts")
    options = parser.parse_args()
    rates: list[Rate] = []
    loads = []
    for number in range(options.rounds):
        ways = (True, False) if number % 2 == 0 else (False, True)
        for link in options.links.split(","):
            loads.append(os.getloadavg()[0])
            with shared_folder() as folder:
                rates += a_round(link, folder, ways)
            print(page(rates), file=sys.stderr)
    figures = {"load_before": loads, "rates": [asdict(rate) for rate in rates]}
    report.write(options.out, "rates", figures, page(rates))


if __name__ == "__main__":
    main()
