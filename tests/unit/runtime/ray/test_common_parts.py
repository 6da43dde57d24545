"""Calls go to workers without what they have in common, and come out whole."""

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
from mrflight.runtime.ray.common_parts import CallEncoder, decode_call
from mrflight.shuffle.client.shuffle import Shuffle
from mrflight.sources import open_source
from mrflight.system.in_common import InCommon
from mrflight.tasks.tasks import MapTask, run_map
from tests.support.plans import MEMORY, WORKERS, job

FEW_HUNDRED_BYTES = 600
SHUFFLE = Shuffle("grpc+tcp://127.0.0.1:50051", "20261122T142320-bbcb3ba98f3f", 1_000)
SECTIONS = {
    "groups": {"reduce": {"group_by": ["url"], "aggregate": {"weight": "sum(weight)"}}},
    "a sort": {"reduce": {"sort_by": ["url"]}, "inputs": {"visits": {"path": "visits.csv"}}},
}


@dataclass
class Counting(InCommon):
    """Something that a task changes."""

    count: int


def add(to: Counting, also_to: Counting) -> int:
    to.count += 1
    return also_to.count


class Worker:
    """What a worker of one job knows."""

    def __init__(self) -> None:
        self.parts: dict[int, bytes] = {}
        self.encoder = CallEncoder(self.parts.__setitem__)

    def make(self, function: Any, *args: Any) -> Any:
        call = self.encoder.encode(function, args, {})
        function, args, kwargs = decode_call(call.call, {at: self.parts[at] for at in call.parts})
        return function(*args, **kwargs)


@pytest.mark.parametrize("sections", SECTIONS.values(), ids=SECTIONS)
def test_a_call_is_small_however_many_tasks_there_are(
    sections: dict[str, Any], tmp_path: Path
) -> None:
    tasks = thousands_of_maps(tmp_path, sections)
    assert len(tasks) > 2_000
    sent: dict[int, bytes] = {}
    encoder = CallEncoder(sent.__setitem__)
    calls = [encoder.encode(run_map, (task, 0, SHUFFLE, "w" * 16), {}) for task in tasks]
    assert max(len(call.call) for call in calls) < FEW_HUNDRED_BYTES
    assert len(sent) <= 6
    for task, call in zip(tasks[::100], calls[::100], strict=True):
        decoded = decode_call(call.call, {part: sent[part] for part in call.parts})
        assert decoded == (run_map, (task, 0, SHUFFLE, "w" * 16), {})
        assert len(encode_call(*decoded)) > 3 * FEW_HUNDRED_BYTES // 2


def thousands_of_maps(folder: Path, sections: dict[str, Any]) -> tuple[MapTask, ...]:
    """Of one file; a sort's with boundaries, one object in all of them."""
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


def test_what_a_task_does_to_a_part_no_other_one_sees() -> None:
    worker, counting = Worker(), Counting(0)
    assert [worker.make(add, counting, counting) for _ in range(3)] == [1, 1, 1]
    assert counting.count == 0


def test_equal_parts_are_one_however_many_objects_there_are() -> None:
    worker = Worker()
    for number in range(1_000):
        worker.make(add, Counting(number % 2), Counting(7))
    assert sorted(pickle.loads(part).count for part in worker.parts.values()) == [0, 1, 7]


def test_a_part_that_cannot_be_pickled_is_the_calls_error_and_leaves_nothing() -> None:
    worker = Worker()
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        worker.make(add, Counting(lambda: 0), Counting(7))  # type: ignore[arg-type]
    assert worker.make(add, Counting(3), Counting(4)) == 4
