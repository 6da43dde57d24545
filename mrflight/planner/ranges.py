"""Gives a range partitioner its boundaries, once keys of its rows are sampled: a pure function."""

from __future__ import annotations

import pyarrow as pa
from msgspec.structs import replace

from mrflight.planner.map_plan import ShuffleInput
from mrflight.shuffle.client.range_partitioner import choose_boundaries
from mrflight.tasks.map_task import MapTask


def with_boundaries(side: ShuffleInput, sample: pa.Table, *, repeats: bool) -> tuple[MapTask, ...]:
    """Return the map tasks of a table, whose partitions are ranges of about the same size.

    The columns of the ``sample`` are the keys. With ``repeats`` rows of one key may be spread over
    several partitions.
    """
    # The inputs' key columns may have different names, but they compare alike.
    keys = side.map_tasks[0].partitioner.sort_keys
    sort_keys = [
        replace(key, column=name) for key, name in zip(keys, sample.column_names, strict=True)
    ]
    boundaries = choose_boundaries(sample, sort_keys, side.partitions, repeats=repeats)
    maps = len(side.map_tasks) if repeats else None
    # One object for all maps of an input, because it is sent to a worker once.
    planned = {id(task.partitioner): task.partitioner for task in side.map_tasks}
    partitioners = {
        key: replace(each, boundaries=boundaries, maps=maps) for key, each in planned.items()
    }
    return tuple(
        replace(task, partitioner=partitioners[id(task.partitioner)]) for task in side.map_tasks
    )
