"""The tasks that workers run. Importing this module loads what their attempts need.

A task runs in one worker process and may run again. Its output counts only once its attempt is
committed.
"""

from mrflight.tasks.map_task import MapResult, MapTask, run_map
from mrflight.tasks.partial_aggregate_task import PartialAggregateTask, run_partial_aggregate
from mrflight.tasks.reduce_task import ReduceResult, ReduceTask, run_reduce
from mrflight.tasks.sample_task import SampleTask, run_sample

__all__ = [
    "MapResult",
    "MapTask",
    "PartialAggregateTask",
    "ReduceResult",
    "ReduceTask",
    "SampleTask",
    "run_map",
    "run_partial_aggregate",
    "run_reduce",
    "run_sample",
]
