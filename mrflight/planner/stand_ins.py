"""Files that stand for tables of a query while DataFusion plans it, since tasks get the rows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from mrflight.compute.sql.engine import quoted
from mrflight.compute.sql.physical.probe import with_views

if TYPE_CHECKING:
    from datafusion import SessionContext

_MAX_FILE_ROWS = 2**20
"""So many rows are written in 20 ms. With more, a table is large in any case."""


class StandIn(NamedTuple):
    """What stands for a table: a folder of files without its columns, one for each partition.

    From a single file DataFusion would read a single partition, and would not merge partitions
    where an operator needs all rows.
    """

    name: str
    folder: Path
    partitions: int
    rows: int | None
    """The number of rows that DataFusion expects; None if that is not known."""

    def register(self, session: SessionContext, schema: pa.Schema) -> list[str]:
        """Register the table with these columns, and return its files."""
        schema = with_views(schema)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        folder = f"{self.folder.as_uri()}/"
        if self.rows is None:
            first = self.folder / "0.arrow"
            with pa.OSFile(str(first), "wb") as file, pa.ipc.new_file(file, schema):
                pass
            files = self._copied(first)
            table = f"external table {quoted(self.name)}"
            session.sql(f"create {table} stored as arrow location '{folder}'")
            return files
        first = self.folder / "0.parquet"
        _write_rows(first, min(_MAX_FILE_ROWS, -(-self.rows // self.partitions) + 1))
        files = self._copied(first)
        session.register_parquet(quoted(self.name), folder, schema=schema)
        return files

    def _copied(self, first: Path) -> list[str]:
        others = [first.with_stem(str(number)) for number in range(1, self.partitions)]
        for other in others:
            other.hardlink_to(first)
        return [str(path) for path in (first, *others)]


def _write_rows(path: Path, rows: int) -> None:
    """Write a file whose footer has a number of rows, which is all that a plan needs of it."""
    import numpy as np
    import pyarrow.parquet as pq

    schema = pa.schema([pa.field("", pa.bool_(), nullable=False)])
    table = pa.table([pa.array(np.zeros(rows, np.bool_))], schema=schema)
    pq.write_table(table, path, row_group_size=rows, compression="none", write_statistics=False)
