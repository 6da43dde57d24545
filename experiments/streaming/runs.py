"""Runs the systems, each run in processes of its own, and keeps what they measured."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from experiments.datasets import REPOSITORY
from experiments.streaming import ingested
from experiments.streaming.outcome import Found, Outcome, Written, spread, thinned
from experiments.streaming.run_spec import Place, RunSpec
from experiments.streaming.sampling import Sampler, sampling
from experiments.streaming.servers import Servers, environment
from experiments.streaming.systems import System
from experiments.streaming.table_files import files_of

PROGRAM = "experiments.streaming.program"
TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Bench:
    """The servers and the topic of one experiment."""

    servers: Servers
    brokers: str
    topic: str
    events: int
    seconds: float

    def spec(self, system: System, batch: int, place: Place) -> RunSpec:
        return RunSpec(
            system.name, batch, self.seconds, self.events, self.brokers, self.topic, place
        )


def one_round(
    bench: Bench, systems: Sequence[System], batches: Sequence[int], number: int
) -> Iterator[Outcome]:
    """Run every system with each size of batch, in an order that the number of the round decides.

    Each round begins with another system, and every other goes backwards.
    """
    shift = number * 3 % len(systems)
    order = [*systems[shift:], *systems[:shift]]
    for batch in batches:
        for system in order if number % 2 == 0 else reversed(order):
            yield run(bench, system, batch, number)


def run(bench: Bench, system: System, batch: int, number: int) -> Outcome:
    """Run one system once; raise RuntimeError unless each event is in its table once."""
    with bench.servers.place(system) as place:
        spec = bench.spec(system, batch, place)
        path = Path(place.folder) / "spec.json"
        path.write_bytes(msgspec.json.encode(spec))
        servers = bench.servers.processes(system)
        if system.is_stream:
            process = ingested.start(ingested.write_job(spec, system.format), spec)
            with process, sampling([process.pid, *servers]) as sampler:
                ingested.run_for(process, spec.seconds)
            found = _count(path)
            written = ingested.written(spec, found.rows, found.commits)
        else:
            written, sampler = _write(path, servers)
            found = _count(path)
        if not found.rows == found.trips == written.total:
            raise RuntimeError(
                f"{system.title} has {found.rows:,} rows of {found.trips:,} trips after "
                f"{written.total:,} events"
            )
        flush_s = written.flush_s
        if system.name == "mrflight-log":
            flush_s = ingested.flush_log(spec)
        return Outcome(
            system.name,
            batch,
            number,
            round(written.ended - written.began, 4),
            written.events,
            spread([took for _, took in written.writes]),
            written.reads_s,
            thinned(written.writes),
            sampler.between(written.began, written.ended),
            files_of(found.location, place.storage),
            flush_s,
            written.merge_s,
        )


def _write(path: Path, servers: Sequence[int]) -> tuple[Written, Sampler]:
    with _program("write", path) as process, sampling([process.pid, *servers]) as sampler:
        written = msgspec.json.decode(_output(process), type=Written)
    return written, sampler


def _count(path: Path) -> Found:
    with _program("count", path) as process:
        return msgspec.json.decode(_output(process), type=Found)


def _program(what: str, path: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", PROGRAM, what, str(path)]
    return subprocess.Popen(
        words,
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def _output(process: subprocess.Popen[str]) -> str:
    said, errors = process.communicate(timeout=TIMEOUT_S)
    if process.returncode:
        raise RuntimeError(f"{process.args!r} ended with {process.returncode}:\n{errors}")
    return said.splitlines()[-1]
