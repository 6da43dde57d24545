"""Measure what encrypting costs a job on a standing cluster of the same machine.

    python -m experiments.tls_cost [--rows N] [--rounds N] [--data FOLDER] [--out FOLDER]

The clicks job runs on two clusters, each with a metadata server and one data server: one listens on
loopback in the clear, the other with TLS and certificates on both sides. Each is used over Flight
only, where all rows are encrypted, and with shared memory, where they are not sent. The four take
turns, and every other round goes backwards. Every table is compared with DuckDB's answer.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

from experiments import clicks_fingerprint, datasets, machine, mrflight_job, report, timed_process
from experiments.datasets import WORK
from mrflight.security.authority import issue, new_authority

FILES = 10
TRANSPORTS = ("flight", "shared")
TIMEOUT_S = 600.0


@contextmanager
def server(kind: str, options: Sequence[str], started: list[psutil.Process]) -> Iterator[str]:
    """Run a server, and yield its location."""
    command = [sys.executable, "-m", f"mrflight.servers.{kind}", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        started.append(psutil.Process(process.pid))
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()
            process.wait()


@contextmanager
def cluster(options: Sequence[str]) -> Iterator[tuple[str, list[psutil.Process]]]:
    """Run a metadata server and a data server; yield the location, and the processes."""
    started: list[psutil.Process] = []
    with (
        server("metadata", options, started) as metadata,
        server("data", ["--metadata", metadata, "--memory", "8 GiB", *options], started),
    ):
        yield metadata, started


def certificates(folder: Path) -> dict[str, str]:
    """Write an authority and one certificate, which servers and the job use; return the files."""
    authority = new_authority("experiment", 1)
    issued = issue(authority, "experiment", ["127.0.0.1"], days=1)
    contents = {
        "ca": authority.certificate_pem,
        "certificate": issued.certificate_pem,
        "key": issued.key_pem,
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return {name: str(folder / name) for name in contents}


def measure(options: argparse.Namespace, files: list[Path], folder: Path) -> list[dict[str, Any]]:
    """Return the runs of all rounds."""
    own = certificates(folder)
    of_servers = [word for name, path in own.items() for word in (f"--tls-{name}", path)]
    right = clicks_fingerprint.of_visits(files)
    runs = []
    with ExitStack() as stack:
        clusters = {
            "clear": stack.enter_context(cluster([])),
            "tls": stack.enter_context(cluster([*of_servers, "--verify-client"])),
        }
        ways = [(name, transport) for transport in TRANSPORTS for name in clusters]
        for number in range(options.rounds):
            for name, transport in ways if number % 2 == 0 else reversed(ways):
                metadata, servers = clusters[name]
                settings = [f"cluster.metadata={metadata}", f"cluster.transport={transport}"]
                if name == "tls":
                    settings += [f"cluster.tls.{key}={path}" for key, path in own.items()]
                datasets.warm(files)
                table, before = folder / "out", cpu_s(servers)
                command = mrflight_job.command(files, table, settings)
                timed = timed_process.run(command, TIMEOUT_S)
                clicks_fingerprint.check(table, right, f"{name}, {transport}")
                shutil.rmtree(table)
                used = timed.cpu_s + cpu_s(servers) - before
                figures = {"wall_s": timed.wall_s, "cpu_s": used, "round": number}
                runs.append({"cluster": name, "transport": transport, **figures})
                print(runs[-1], file=sys.stderr, flush=True)
    return runs


def cpu_s(processes: Sequence[psutil.Process]) -> float:
    """Return the processor time that processes have used until now."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def page(runs: list[dict[str, Any]]) -> str:
    """Return the medians, and the ratios by round."""
    lines = ["| rows go | clear, s | TLS, s | TLS / clear | core-seconds: clear | TLS | ratio |"]
    lines.append("|" + "---|" * 7)
    for transport in TRANSPORTS:
        of = {
            name: [run for run in runs if (run["cluster"], run["transport"]) == (name, transport)]
            for name in ("clear", "tls")
        }
        cells = [transport]
        for figure in ("wall_s", "cpu_s"):
            plain, secured = ([run[figure] for run in each] for each in of.values())
            ratios = [b / a for a, b in zip(plain, secured, strict=True)]
            cells += [f"{statistics.median(each):.2f}" for each in (plain, secured)]
            cells.append(report.median_and_range(ratios))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=15_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", type=Path, default=WORK / "data", help="inputs are kept there")
    parser.add_argument("--out", type=Path, default=WORK / "tls_cost")
    options = parser.parse_args()
    files = datasets.generate(datasets.DataSet("unique", options.rows, FILES), options.data)
    with tempfile.TemporaryDirectory(prefix="tls-cost-") as folder:
        runs = measure(options, files, Path(folder))
    described = {"cores": machine.cores(), "rows": options.rows, "runs": runs}
    report.write(options.out, "tls_cost", described, page(runs))


if __name__ == "__main__":
    main()
