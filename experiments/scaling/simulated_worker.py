"""Simulated workers: they take calls and return answers, but have no rows."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from experiments.scaling.size import SCHEMA, Size
from mrflight.ids import MapAttempt
from mrflight.runtime.calls import encode_call, run_call
from mrflight.runtime.ray.shared_payloads import decode_call
from mrflight.runtime.task_call import TaskCall
from mrflight.shuffle.client.metadata_client import MetadataClient
from mrflight.shuffle.client.shuffle import Shuffle
from mrflight.shuffle.wire.idle_connections import keep_idle
from mrflight.shuffle.wire.protocol import CommitMap, DescribeShuffle, Message, MetadataAction
from mrflight.sinks.parts.base import PartFile
from mrflight.storage.part_name import PartId, part_name
from mrflight.tasks.map_output import run_map
from mrflight.tasks.map_task import MapResult, MapTask
from mrflight.tasks.part_files import ReduceResult
from mrflight.tasks.reduce_task import ReduceTask

_ENCODED_SCHEMA = SCHEMA.serialize().to_pybytes()
REDUCES_TO = 10
"""The approximate number of rows per group."""


class _Described(Message, frozen=True, forbid_unknown_fields=False):
    """The parts of a `ShuffleDescription` that a commit repeats.

    The rest is received too, but is not decoded: one process simulates all workers, and decoding
    would take most of its time.
    """

    version: int
    token: str


@dataclass(frozen=True)
class SimulatedCalls:
    """Sends the messages of a task to the metadata server, and answers as if the task had run."""

    size: Size

    def of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the simulated call of a function, which may be that of a `TaskCall`."""
        called = function.function if isinstance(function, TaskCall) else function
        return self.run_map if called is run_map else self.run_reduce

    def run_map(self, task: MapTask, attempt: int, shuffle: Shuffle, writer_id: str) -> MapResult:
        """Ask where the partitions are, and commit, as `ShuffleWriter` does."""
        rows, sizes = self.size.reported(task.map_id)
        request = DescribeShuffle(shuffle.id, task.map_id, shuffle.token)
        with shuffle.connections() as connections:
            client = MetadataClient(
                shuffle.metadata, connections, shuffle.client.timeouts.reconnect_s
            )
            target = client.ask(MetadataAction.DESCRIBE_SHUFFLE, request, _Described)
            commit = CommitMap(
                shuffle.id,
                task.map_id,
                attempt,
                _ENCODED_SCHEMA,
                rows,
                sizes,
                writer_id,
                target.version,
                token=target.token,
                routing=f"{task.map_id:016x}",
            )
            winner, _ = client.commit_map(commit)
        assert winner == MapAttempt(task.map_id, attempt, writer_id), "there is no other writer"
        total = sum(rows)
        return MapResult(total, total, total, 0)

    def run_reduce(self, task: ReduceTask, attempt: int) -> ReduceResult:
        """Return a part file for each file of the task, with its statistics for Delta."""
        parts = []
        for file in task.files:
            rows = sum(each.rows for each in file) // REDUCES_TO
            number = file[0].partition
            name = part_name(PartId(number, attempt), "0123456789abcdef", 0, "parquet")
            part = PartFile(
                path=name,
                rows=rows,
                size_bytes=rows * 40,
                stats=_stats(number, rows),
                schema=SCHEMA,
            )
            parts.append(part)
        return ReduceResult(sum(part.rows for part in parts), SCHEMA, tuple(parts))


def _stats(number: int, rows: int) -> str:
    return json.dumps(
        {
            "numRecords": rows,
            "minValues": {"url": f"https://a.example/{number}", "clicks": 1, "spent": 0.01},
            "maxValues": {"url": f"https://z.example/{number}", "clicks": number, "spent": 9.5},
            "nullCount": {"url": 0, "country": number % 7, "clicks": 0, "spent": 0},
        }
    )


def simulate(channel: Connection, size: Size, threads: int) -> None:
    """Answer numbered calls until a number below 0."""
    keep_idle()
    calls = SimulatedCalls(size)
    known: dict[int, bytes] = {}
    sending = threading.Lock()

    def make(number: int, call: bytes) -> None:
        function, args, kwargs = decode_call(call, known)
        made = run_call(encode_call(calls.of(function), args, kwargs), lambda _: None)
        with sending:
            channel.send((number, made))

    with ThreadPoolExecutor(threads) as pool:
        while (message := channel.recv())[0] >= 0:
            number, call, parts = message
            known.update(parts)
            pool.submit(make, number, call)
    channel.send((-1, b""))
