"""mrflight: moves data by key over Arrow Flight, from files to tables, without Spark.

Names are loaded at their first use, so that ``import mrflight`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mrflight.api import partition_ids, read_table, run
    from mrflight.client import Cluster, connect
    from mrflight.dataset import Dataset, read
    from mrflight.errors import MrflightError
    from mrflight.result import JobResult
    from mrflight.shuffle.shuffle import Shuffle
    from mrflight.shuffle.writer import ShuffleWriter

__version__ = "0.1.0"

__all__ = [
    "Cluster",
    "Dataset",
    "JobResult",
    "MrflightError",
    "Shuffle",
    "ShuffleWriter",
    "connect",
    "partition_ids",
    "read",
    "read_table",
    "run",
]

_HOME = {
    "Cluster": "mrflight.client",
    "Dataset": "mrflight.dataset",
    "JobResult": "mrflight.result",
    "MrflightError": "mrflight.errors",
    "Shuffle": "mrflight.shuffle.shuffle",
    "ShuffleWriter": "mrflight.shuffle.writer",
    "connect": "mrflight.client",
    "partition_ids": "mrflight.api",
    "read": "mrflight.dataset",
    "read_table": "mrflight.api",
    "run": "mrflight.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'mrflight' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
