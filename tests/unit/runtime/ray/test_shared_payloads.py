"""Calls are sent without the payloads that they share, and are decoded with them."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from mrflight.planner.stage_plan import plan_stage
from mrflight.runtime.calls import encode_call
from mrflight.runtime.ray.shared_payloads import CallEncoder, decode_call
from mrflight.shuffle.client.shuffle import Shuffle
from mrflight.sources import open_source
from mrflight.system.shared_payload import SharedPayload
from mrflight.tasks.map_output import run_map
from mrflight.tasks.map_task import MapTask
from tests.support.jobs.plans import MEMORY, WORKERS, job

FEW_HUNDRED_BYTES = 600
SHUFFLE = Shuffle("grpc+tcp://127.0.0.1:50051", "20261122T142320-bbcb3ba98f3f", 1_000)
SECTIONS = {
    "groups": {"reduce": {"group_by": ["url"], "aggregate": {"weight": "sum(weight)"}}},
    "a sort": {"reduce": {"sort_by": ["url"]}, "inputs": {"visits": {"path": "visits.csv"}}},
}


@dataclass
class Counting(SharedPayload):
    """A payload that tasks change."""

    count: int


def add(to: Counting, also_to: Counting) -> int:
    to.count += 1
    return also_to.count


class Worker:
    """An encoder, and a worker that has all payloads."""

    def __init__(self) -> None:
        self.payloads: dict[int, bytes] = {}
        self.encoder = CallEncoder(self.payloads.__setitem__)

    def run(self, function: Any, *args: Any) -> Any:
        call = self.encoder.encode(function, args, {})
        function, args, kwargs = decode_call(
            call.call, {at: self.payloads[at] for at in call.payloads}
        )
        return function(*args, **kwargs)


@pytest.mark.parametrize("sections", SECTIONS.values(), ids=SECTIONS)
def test_calls_of_a_stage_with_many_tasks_are_small(
    sections: dict[str, Any], tmp_path: Path
) -> None:
    tasks = thousands_of_maps(tmp_path, sections)
    assert len(tasks) > 2_000  # or the test would not show that their number does not matter
    sent: dict[int, bytes] = {}
    encoder = CallEncoder(sent.__setitem__)
    calls = [encoder.encode(run_map, (task, 0, SHUFFLE, "w" * 16), {}) for task in tasks]
    assert max(len(call.call) for call in calls) < FEW_HUNDRED_BYTES
    assert len(sent) == 4
    for task, call in zip(tasks[::100], calls[::100], strict=True):
        decoded = decode_call(call.call, {number: sent[number] for number in call.payloads})
        assert decoded == (run_map, (task, 0, SHUFFLE, "w" * 16), {})
        assert len(encode_call(*decoded)) > 3 * FEW_HUNDRED_BYTES // 2


def thousands_of_maps(folder: Path, sections: dict[str, Any]) -> tuple[MapTask, ...]:
    """Return the maps of one file; those of a sort share one object with the boundaries."""
    lines = [f"https://site/{number % 997},{number}" for number in range(10_000)]
    (folder / "visits.csv").write_text("url,weight\n" + "\n".join(lines) + "\n")
    spec = job(**sections)
    sources = [open_source(name, each, folder, {}, 100) for name, each in spec.inputs.items()]
    (side,) = plan_stage(spec, sources, str(folder), WORKERS, MEMORY).sides
    if side.map_tasks[0].partitioner.kind != "range":
        return side.map_tasks
    boundaries = pa.record_batch({"0": [f"https://site/{number:03}" for number in range(999)]})
    partitioner = replace(side.map_tasks[0].partitioner, boundaries=boundaries)
    return tuple(replace(task, partitioner=partitioner) for task in side.map_tasks)


def test_each_task_changes_its_own_copy_of_a_payload() -> None:
    worker, counting = Worker(), Counting(0)
    assert [worker.run(add, counting, counting) for _ in range(3)] == [1, 1, 1]
    assert counting.count == 0


def test_equal_payloads_are_sent_once() -> None:
    worker = Worker()
    for number in range(1_000):
        worker.run(add, Counting(number % 2), Counting(7))
    assert sorted(pickle.loads(payload).count for payload in worker.payloads.values()) == [0, 1, 7]


def test_a_payload_that_cannot_be_pickled_fails_its_call_only() -> None:
    worker = Worker()
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        worker.run(add, Counting(lambda: 0), Counting(7))  # type: ignore[arg-type]
    assert worker.run(add, Counting(3), Counting(4)) == 4
