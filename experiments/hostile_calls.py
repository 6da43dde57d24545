"""Send damaged Flight calls to a standing cluster, and see whether it crashes, grows or forgets.

    python -m experiments.hostile_calls [--calls N] [--seed N] [--out FOLDER]

A metadata server and a data server know their callers by tokens. Each gets N calls of any method by
raw gRPC: Flight's messages, with bits turned, cuts and repeats in them, for the server's actions,
tickets, descriptors and puts. The callers take turns: one sends no token, one a wrong one, and one
the token of a job. What memory, threads and files the second half of the calls adds is the growth.
After every tenth of them a shuffle must return its rows.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import msgspec
import psutil
import pyarrow as pa
from pyarrow import flight

import mrflight
from experiments import machine, report
from experiments.datasets import WORK
from mrflight.config.identity import Identity
from mrflight.ids import ShuffleKey
from mrflight.security.hashed_tokens import access_entry, new_bearer_token
from mrflight.security.job_tokens import write_private
from mrflight.shuffle.wire import cluster_status, lease_protocol, move_protocol, protocol
from mrflight.shuffle.wire.protocol import Message
from mrflight.shuffle.wire.tickets import BlockStream, ReadTicket
from tests.support.clusters.cluster import server_process
from tests.support.commands.open_ports import METHODS, SERVICE
from tests.support.faults.hostile_bytes import damaged, example_of, hostile_json, random_bytes

SHUFFLE = "clicks-1"
THREADS = 4
TIMEOUT_S = 20.0
ROUNDS = 10
"""The parts in which the calls are sent; after each, a shuffle is written and read."""
ROWS = pa.record_batch({"n": pa.array(range(1_000)), "text": [str(n) for n in range(1_000)]})


def field(number: int, value: bytes | int) -> bytes:
    """Encode one field of a protobuf message: bytes with their length, or a number."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    """Encode a number in groups of seven bits, the lowest first."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def actions_of(location: str, token: str) -> dict[str, type[Message]]:
    """Return the message of each action of a server, which describes it by its meaning."""
    messages = [
        each
        for module in (protocol, lease_protocol, cluster_status, move_protocol)
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, Message)
    ]
    meanings = {(each.__doc__ or "").partition("\n")[0]: each for each in messages}
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])
    with flight.FlightClient(location) as client:
        return {each.type: meanings[each.description] for each in client.list_actions(options)}


@dataclass(frozen=True)
class Calls:
    """Makes the calls to one server, with the descriptors and messages of Flight.proto."""

    actions: dict[str, type[Message]]

    def request(self, method: str, rng: random.Random) -> list[bytes]:
        """Return the messages of a call."""
        match method:
            case "DoAction":
                return [self._hurt(self._action(rng), rng, 0.3)]
            case "DoGet":
                return [self._hurt(field(1, _ticket(rng)), rng, 0.3)]
            case "DoPut" | "DoExchange":
                first = _with_descriptor(_schema(), _descriptor(rng))
                return [self._hurt(each, rng, 0.3) for each in (first, *_batches(rng))]
            case _:
                return [self._hurt(_descriptor(rng), rng, 0.5)]

    def _action(self, rng: random.Random) -> bytes:
        name = rng.choice(list(self.actions))
        body = msgspec.json.encode(example_of(self.actions[name], rng))
        body = hostile_json(body, rng) if rng.random() < 0.6 else body
        return field(1, name.encode()) + field(2, body[:200_000])

    @staticmethod
    def _hurt(valid: bytes, rng: random.Random, share: float) -> bytes:
        if rng.random() < 0.05:
            return random_bytes(rng)
        return damaged(valid, rng) if rng.random() < share else valid


def _ticket(rng: random.Random) -> bytes:
    ticket = ReadTicket(ShuffleKey(SHUFFLE), rng.choice((0, 1, 2)), 1, blocks=rng.random() < 0.5)
    return damaged(ticket.encode(), rng) if rng.random() < 0.7 else ticket.encode()


def _descriptor(rng: random.Random) -> bytes:
    if rng.random() < 0.5:
        command = hostile_json(BlockStream(SHUFFLE, rng.choice((0, 7)), 0).encode(), rng)
        return field(1, 2) + field(2, command[:10_000])
    path = [SHUFFLE, rng.choice(("0", "2", "9")), "0", "0"]
    return field(1, 1) + b"".join(field(3, part.encode()) for part in path)


def _schema() -> bytes:
    """Return FlightData with the metadata of a schema: a message of IPC without its prefix."""
    return field(2, ROWS.schema.serialize().to_pybytes()[8:])


def _with_descriptor(data: bytes, descriptor: bytes) -> bytes:
    return field(1, descriptor) + data


def _batches(rng: random.Random) -> Iterator[bytes]:
    """Yield FlightData of batches: metadata with its length before it, and the body behind."""
    for _ in range(rng.choice((1, 2))):
        whole = ROWS.serialize().to_pybytes()
        size = int.from_bytes(whole[4:8], "little")
        yield field(2, whole[8 : 8 + size]) + field(3, b"tag") + field(1000, whole[8 + size :])


@dataclass(frozen=True)
class Target:
    """A server, and who calls it."""

    kind: str
    address: str
    process: psutil.Process
    callers: dict[str, tuple[tuple[str, str], ...]]
    actions: dict[str, type[Message]]

    def use(self) -> dict[str, int]:
        return {
            "memory_bytes": self.process.memory_info().rss,
            "threads": self.process.num_threads(),
            "files": self.process.num_fds(),
        }


def send(target: Target, count: int, seed: str) -> Counter[str]:
    """Send calls one after the other; return how they ended, by caller and status."""
    rng, calls = random.Random(seed), Calls(target.actions)
    ends: Counter[str] = Counter()
    with grpc.insecure_channel(target.address) as channel:
        for number in range(count):
            caller = rng.choice(list(target.callers))
            method = rng.choice(list(METHODS)) if rng.random() < 0.5 else "DoAction"
            requests = calls.request(method, rng)
            end = call(channel, method, requests, target.callers[caller])
            if end in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
                raise RuntimeError(
                    f"{target.kind}, seed {seed}, call {number}, {caller}, {method}: {end}; "
                    f"{[request[:300] for request in requests]}"
                )
            ends[f"{caller}: {end}"] += 1
    return ends


def call(
    channel: grpc.Channel, method: str, requests: list[bytes], headers: tuple[tuple[str, str], ...]
) -> str:
    """Make a call; return the name of its status."""
    kind = METHODS[method]
    made = getattr(channel, kind)(f"/{SERVICE}/{method}", None, None)
    request: Any = iter(requests) if kind.startswith("stream") else requests[0]
    try:
        answer = made(request, timeout=TIMEOUT_S, metadata=headers)
        if kind.endswith("stream"):
            for _ in answer:
                pass
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


def works(metadata: str, identity: Identity, name: str) -> None:
    """Write a shuffle and read it; raise AssertionError if a row is missing."""
    with mrflight.connect(metadata, identity=identity) as cluster:
        shuffle = cluster.create_shuffle(name, partitions=4)
        with shuffle.writer(map_id=0, key=["n"]) as out:
            out.write(ROWS)
        found = [n for p in range(4) for piece in shuffle.reader(p) for n in piece["n"].to_pylist()]
        assert sorted(found) == list(range(1_000)), "a shuffle lost rows"
        shuffle.drop()


def tidy(metadata: str, admin: Identity, data: str) -> None:
    """Drop the shuffles that damaged calls of the job were right enough to create."""
    with mrflight.connect(metadata, identity=admin) as cluster:
        for shuffle in cluster.status().shuffles:
            cluster.open_shuffle(shuffle.id).drop()
        assert [server.location for server in cluster.status().servers] == [data]
        assert cluster.stats(data).blocks == 0


@dataclass(frozen=True)
class Cluster:
    metadata: str
    data: str
    targets: list[Target]
    job: Identity
    admin: Identity


def started(folder: Path, stack: ExitStack) -> Cluster:
    """Start the servers, with an access file of three callers."""
    tokens = {name: new_bearer_token() for name in ("server", "job", "admin")}
    entries = [access_entry(name, [name], token) for name, token in tokens.items()]  # type: ignore[list-item]
    write_private(folder / "access.toml", "".join(entries))
    for name, token in tokens.items():
        write_private(folder / f"{name}.token", token)
    options = ["--port", "0", "--access", str(folder / "access.toml")]
    options += ["--token", f"file:{folder / 'server.token'}"]
    log = stack.enter_context((folder / "log").open("wb"))
    metadata, line = stack.enter_context(server_process("metadata", *options, stderr=log))
    location = line.split()[-1]
    options += ["--metadata", location, "--memory", "256 MiB"]
    data, line = stack.enter_context(server_process("data", *options, stderr=log))
    callers = {
        "no token": (),
        "a wrong token": (("authorization", f"Bearer {'0' * 64}"),),
        "a job": (("authorization", f"Bearer {tokens['job']}"),),
    }
    places = {"metadata": (location, metadata.pid), "data": (line.split()[-1], data.pid)}
    targets = [
        Target(
            kind,
            where.partition("://")[2],
            psutil.Process(pid),
            callers,
            actions_of(where, tokens["job"]),
        )
        for kind, (where, pid) in places.items()
    ]
    job, admin = (Identity(token=f"file:{folder / f'{name}.token'}") for name in ("job", "admin"))
    return Cluster(location, places["data"][0], targets, job, admin)


def measure(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Send all calls; return for each server how they ended, and what it grew by."""
    ends: dict[str, Counter[str]] = defaultdict(Counter)
    use: dict[str, list[dict[str, int]]] = defaultdict(list)
    began = time.perf_counter()
    with ExitStack() as stack:
        cluster = started(folder, stack)
        pool = stack.enter_context(ThreadPoolExecutor(THREADS))
        share = -(-options.calls // (ROUNDS * THREADS))
        for number in range(ROUNDS):
            for target in cluster.targets:
                seeds = [f"{options.seed} {target.kind} {number} {of}" for of in range(THREADS)]
                for found in pool.map(partial(send, target, share), seeds):
                    ends[target.kind] += found
            tidy(cluster.metadata, cluster.admin, cluster.data)
            works(cluster.metadata, cluster.job, f"round-{number}")
            for target in cluster.targets:
                use[target.kind].append(target.use())
                print(f"{number}: {use[target.kind][-1]}", file=sys.stderr, flush=True)
    log = (folder / "log").read_text(errors="replace")
    assert "Traceback" not in log, log[log.index("Traceback") :][:3_000]
    half = ROUNDS // 2 - 1
    return [
        {
            "server": kind,
            "calls": sum(found.values()),
            "ends": dict(sorted(found.items())),
            "use": use[kind],
            "growth": {name: use[kind][-1][name] - use[kind][half][name] for name in use[kind][-1]},
            "seconds": round(time.perf_counter() - began, 1),
        }
        for kind, found in ends.items()
    ]


def page(servers: list[dict[str, Any]]) -> str:
    """Return a table of how calls ended, and one of what each server grew by."""
    lines = ["| server | caller: status | calls |", "|---|---|---|"]
    for each in servers:
        lines += [
            f"| {each['server']} | {end} | {count:,} |" for end, count in each["ends"].items()
        ]
    lines += ["", "| server | calls | growth in the second half: memory, KiB | threads | files |"]
    lines.append("|" + "---|" * 5)
    for each in servers:
        grown = each["growth"]
        lines.append(
            f"| {each['server']} | {each['calls']:,} | {grown['memory_bytes'] // 1024:,} "
            f"| {grown['threads']} | {grown['files']} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--calls", type=int, default=100_000, help="for each server")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--out", type=Path, default=WORK / "hostile_calls")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hostile-calls-") as folder:
        servers = measure(options, Path(folder))
    described = {"cores": machine.cores(), "seed": options.seed, "servers": servers}
    report.write(options.out, "hostile_calls", described, page(servers))


if __name__ == "__main__":
    main()
