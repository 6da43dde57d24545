"""Runs a query in DataFusion over given tables, with a memory limit and a folder to spill to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from mrflight.compute.sql.engine import add_table, new_session, quoted
from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.operators.spill_partitions import translate_disk_errors

if TYPE_CHECKING:
    from datafusion import SessionContext

_SORT_BYTES = 10 * 2**20
"""The most bytes that a sort reserves for merging its spilled runs: DataFusion's default."""

_SORT_FRACTION = 8
"""A sort reserves an eighth of a small pool for merging its spilled runs. With a sixteenth or a
quarter, some queries of three windows in different orders failed in a pool of 8 MiB."""

_BATCH_ROWS = 8192
"""DataFusion's default for the rows of a batch."""

_BATCH_FRACTION = 64
"""A batch takes at most 1/64 of the pool. A merge holds four batches of each of its runs: with
8,192 rows of 3 kB in a batch, it asked for 13.6 of 8 MiB at once."""


class SqlRun(msgspec.Struct, frozen=True):
    """The tables and limits of one run of a query."""

    tables: dict[str, list[pa.RecordBatch] | Path]
    """Rows in memory, or a file with an Arrow IPC stream."""
    options: dict[str, str]
    pool_bytes: int
    scratch: ScratchFolder
    row_bytes: int
    """The average bytes of a row with the columns of all tables."""

    def session(self, can_spill_joins: bool) -> SessionContext:
        """Return a session with the tables. With ``can_spill_joins`` it uses sort-merge joins."""
        from datafusion import RuntimeEnvBuilder

        with translate_disk_errors(self.scratch.root):
            folder = str(self.scratch.path)
        options = {
            **self.options,
            **pool_limits(self.pool_bytes, self.row_bytes),
            "datafusion.optimizer.prefer_hash_join": str(not can_spill_joins).lower(),
        }
        runtime = RuntimeEnvBuilder().with_disk_manager_specified(folder)
        session = new_session(
            options,
            partitions=2 if can_spill_joins else 1,  # with 1, DataFusion plans hash joins only
            runtime=runtime.with_fair_spill_pool(self.pool_bytes),
        )
        for name, rows in self.tables.items():
            if isinstance(rows, Path):
                location = f"stored as arrow location '{rows.as_uri()}'"
                session.sql(f"create external table {quoted(name)} {location}")
            else:
                add_table(session, name, rows)
        return session


def pool_limits(pool_bytes: int, row_bytes: int) -> dict[str, str]:
    """Return options that let a sort of any number of rows run in a pool.

    ``row_bytes`` are those of a row with all columns, on average. A sort that spills may merge its
    rows in memory first. That needs additional memory for the keys, and fails if there is none. So
    rows are sorted in place.
    """
    batch_rows = pool_bytes // _BATCH_FRACTION // max(1, row_bytes)
    reserved = min(_SORT_BYTES, pool_bytes // _SORT_FRACTION)
    return {
        "datafusion.execution.batch_size": str(min(_BATCH_ROWS, max(1, batch_rows))),
        "datafusion.execution.sort_spill_reservation_bytes": str(reserved),
        "datafusion.execution.sort_in_place_threshold_bytes": str(pool_bytes),
    }
