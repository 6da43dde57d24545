"""Finds the schema of the rows that a part of a plan makes, and makes scans for given schemas."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from mrflight.compute.sql.physical import plan_fields as of
from mrflight.compute.sql.physical.nodes import SERIES, UNIONS
from mrflight.compute.sql.physical.protobuf import encode_field, replaced
from mrflight.compute.sql.physical.scans import named, reading

if TYPE_CHECKING:
    from datafusion import ExecutionPlan, SessionContext

_PROJECTION = "ProjectionExec"

_ONE_ROW = "select * from (values (1)) one left join {} on true"


class PlanProbe:
    """Asks DataFusion for scans and schemas; it runs plans that read no rows.

    A physical plan does not tell its schema in Python. But one row that is joined with no rows of a
    plan, by a left join, is a row of nulls that has the plan's columns.
    """

    def __init__(self, session: SessionContext, folder: Path) -> None:
        """``folder`` is for files without rows, which have to be there while this is used."""
        self._session = session
        self._folder = folder
        self._count = 0
        name = self._empty_table(pa.schema([("c0", pa.null())]))
        self._joined = self._plan(_ONE_ROW.format(name))
        self._inner = self._plan(f"select * from {name}")

    def scan(self, schema: pa.Schema, path: str) -> bytes:
        """Return a scan of an Arrow IPC file with columns of these types and names.

        The columns of the file are called by their positions: see `positional`. A task says where
        the file is by `mrflight.compute.sql.physical.scans.reading`; ``path`` only stands for it.
        """
        table = self._empty_table(positional(schema))
        return reading(named(self._plan(f"select * from {table}"), schema.names), path, 0)

    def schema(self, plan: bytes) -> pa.Schema:
        """Return the schema of a plan, all of whose scans read nothing."""
        from datafusion import ExecutionPlan

        one = encode_field(of.COALESCE_NODE, encode_field(1, plan))  # a union has several
        joined = replaced(self._joined, self._inner, one)
        node = ExecutionPlan.from_bytes(self._session, joined)
        rows = next(iter(self._session.execute(node, 0)))  # a series has as many as it likes
        return pa.schema(list(rows.to_pyarrow().schema)[1:])

    def lines(self, plan: bytes, known: Sequence[str]) -> tuple[str, ...]:
        """Return a line for each operator that a task decodes; ``known`` are those of the plan.

        Below unions DataFusion adds projections when it decodes a plan, as `mended_series` does.
        """
        from datafusion import ExecutionPlan

        if not any(line.startswith((*UNIONS, SERIES)) for line in known):
            return tuple(known)
        text = ExecutionPlan.from_bytes(self._session, plan).display_indent()
        lines, waiting = [], list(known)
        for each in map(str.strip, text.splitlines()):
            is_known = waiting and each.startswith(_PROJECTION) == waiting[0].startswith(
                _PROJECTION
            )
            lines.append(waiting.pop(0) if is_known else each)
        return tuple(lines)

    def empty_scan(self, scan: bytes) -> bytes:
        """Return a scan, as `scan` makes it, of no rows."""
        return reading(scan, str(self._folder / "0.arrow"), 0)

    def _empty_table(self, schema: pa.Schema) -> str:
        name = f"mrflight_{self._count}"
        path = self._folder / f"{self._count}.arrow"
        self._count += 1
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema):
            pass
        location = f"stored as arrow location '{path.as_uri()}'"
        self._session.sql(f"create external table {name} {location}")
        return name

    def _plan(self, text: str) -> bytes:
        plan: ExecutionPlan = self._session.sql(text).execution_plan()
        return plan.to_bytes(self._session)


def positional(schema: pa.Schema) -> pa.Schema:
    """Return a schema with the names c0, c1, ...: columns of a plan may have equal names.

    Rows without columns, as those that are only counted, get one, since tables have no number of
    rows of their own everywhere.
    """
    if not schema.names:
        return pa.schema([("c0", pa.bool_())])
    return pa.schema([pa.field(f"c{number}", each.type) for number, each in enumerate(schema)])


def with_views(schema: pa.Schema) -> pa.Schema:
    """Return a schema with views of strings and bytes, as DataFusion has them in Parquet files.

    Otherwise the columns of two tables have two types, and some joins of subqueries fail.
    """
    kinds = {pa.string(): pa.string_view(), pa.binary(): pa.binary_view()}
    return pa.schema([pa.field(each.name, kinds.get(each.type, each.type)) for each in schema])
