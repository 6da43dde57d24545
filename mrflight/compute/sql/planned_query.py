"""Rows that pass through one plan: what DataFusion makes of a query runs again for others.

To plan a query takes 2.5 ms where its data has just been read, as much as 100,000 narrow rows take
in it. A table in memory is what its plan was made of, and cannot have other rows. One that
DataFusion reads by the interface of `pyarrow.dataset` is asked for its rows in each run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.dataset as ds

from mrflight.compute.sql.engine import new_session, query, quoted


class PlannedQuery:
    """A query of one table, planned once; the rows of the table are those of each call.

    It must do nothing but project and filter rows: a plan that sorts or joins may keep some.
    """

    def __init__(
        self, text: str, table: str, schema: pa.Schema, options: Mapping[str, str]
    ) -> None:
        self._table = _Table(schema)
        self._session = new_session(options)
        # A dataset would have to do what is pushed down to it, as Arrow understands it.
        self._session.remove_optimizer_rule("push_down_filter")
        self._session.register_dataset(quoted(table), self._table)
        self._plan = query(self._session, text).execution_plan()

    def through(self, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What the query gives for these rows, without batches of none.

        Raises what DataFusion raises, and TypeError for a batch of another schema. The call before
        has been read to its end.
        """
        self._table.batches = batches
        for part in self._session.execute(self._plan, 0):
            batch = part.to_pyarrow()
            if batch.num_rows:
                yield batch
        self._table.batches = ()


class _Table(ds.Dataset):
    """The table, its one fragment, and the scanner of that: all that DataFusion calls.

    It has one part, which `PlannedQuery` reads.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.batches: Sequence[pa.RecordBatch] = ()

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def get_fragments(self, filter: ds.Expression | None = None) -> Iterator[_Table]:
        return iter([self])

    def scanner(
        self,
        schema: pa.Schema | None = None,
        *,
        columns: Sequence[str] | None = None,
        filter: ds.Expression | None = None,
        batch_size: int | None = None,
    ) -> _Scanner:
        if filter is not None:
            raise NotImplementedError(f"rows that pass are not filtered by Arrow: {filter}")
        return _Scanner(self, self._schema.names if columns is None else columns)


class _Scanner:
    def __init__(self, table: _Table, columns: Sequence[str]) -> None:
        self._table = table
        self.projected_schema = pa.schema([table.schema.field(name) for name in columns])

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._table.batches:
            if batch.schema != self._table.schema:
                raise TypeError(f"rows of {batch.schema} come where {self._table.schema} is read")
            yield batch.select(self.projected_schema.names)
