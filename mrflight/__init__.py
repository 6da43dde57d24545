"""mrflight shuffles data by key over Arrow Flight, from files to tables, without Spark.

Names are loaded when they are first used, so that ``import mrflight`` takes no time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mrflight.config.declared_functions import udaf, udf
    from mrflight.config.identity import Identity
    from mrflight.errors import MrflightError
    from mrflight.frontend.api import fresh_token, partition_ids, read_table, run
    from mrflight.frontend.dataset import Dataset
    from mrflight.frontend.expressions import col, lit
    from mrflight.frontend.query import sql
    from mrflight.frontend.read import read, scan_table
    from mrflight.frontend.stream_api import ingest
    from mrflight.result import JobResult
    from mrflight.shuffle.client.cluster import Cluster, connect
    from mrflight.shuffle.client.shuffle import Shuffle
    from mrflight.shuffle.client.writer import ShuffleWriter
    from mrflight.streams.stream_result import StreamResult

__version__ = "0.1.0"

__all__ = [
    "Cluster",
    "Dataset",
    "Identity",
    "JobResult",
    "MrflightError",
    "Shuffle",
    "ShuffleWriter",
    "StreamResult",
    "col",
    "connect",
    "fresh_token",
    "ingest",
    "lit",
    "partition_ids",
    "read",
    "read_table",
    "run",
    "scan_table",
    "sql",
    "udaf",
    "udf",
]

_HOME = {
    "Cluster": "mrflight.shuffle.client.cluster",
    "Dataset": "mrflight.frontend.dataset",
    "Identity": "mrflight.config.identity",
    "JobResult": "mrflight.result",
    "MrflightError": "mrflight.errors",
    "Shuffle": "mrflight.shuffle.client.shuffle",
    "ShuffleWriter": "mrflight.shuffle.client.writer",
    "StreamResult": "mrflight.streams.stream_result",
    "col": "mrflight.frontend.expressions",
    "connect": "mrflight.shuffle.client.cluster",
    "fresh_token": "mrflight.frontend.api",
    "ingest": "mrflight.frontend.stream_api",
    "lit": "mrflight.frontend.expressions",
    "partition_ids": "mrflight.frontend.api",
    "read": "mrflight.frontend.read",
    "read_table": "mrflight.frontend.api",
    "run": "mrflight.frontend.api",
    "scan_table": "mrflight.frontend.read",
    "sql": "mrflight.frontend.query",
    "udaf": "mrflight.config.declared_functions",
    "udf": "mrflight.config.declared_functions",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        hint = "; mrflight.read reads files of every format, and tables in memory"
        is_reader = name.startswith(("read_", "scan_", "from_"))
        raise AttributeError(
            f"module 'mrflight' has no attribute {name!r}" + (hint if is_reader else "")
        )
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
