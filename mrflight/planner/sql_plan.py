"""Plans a query over the inputs of a job: where DataFusion's plan is cut, and the stages of it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec.structs import replace

from mrflight.compute.layout import canonical_schema
from mrflight.compute.sql.engine import EXACT, query, quoted, translate_errors
from mrflight.compute.sql.physical.fragments import BroadcastLimits, FragmentPlan, cut, whole
from mrflight.compute.sql.physical.nodes import Node, expected_rows
from mrflight.compute.sql.physical.probe import PlanProbe, with_views
from mrflight.compute.sql.physical.session import PlanSession
from mrflight.compute.sql.plans import has_floats, reads_floats, used_columns
from mrflight.compute.sql.statements import is_view, split_statements
from mrflight.compute.sql.user_functions import FunctionCalls, UserFunction, check_names
from mrflight.errors import JobFileError, KeyTypeError
from mrflight.planner.partition_count import QueryDivision
from mrflight.planner.sql_stages import SqlStages, Table
from mrflight.planner.stages import Stage
from mrflight.sources.base import Source

if TYPE_CHECKING:
    from datafusion import SessionContext

KEY_PATH = "job.sql"

_PLAIN_SUBQUERIES = "datafusion.optimizer.enable_physical_uncorrelated_scalar_subquery"

_PLANNING = {
    # A task runs one partition of a plan. These let partitions wait for, or take work of, others.
    "datafusion.execution.enable_file_stream_work_stealing": "false",
    "datafusion.optimizer.enable_dynamic_filter_pushdown": "false",
    # Expressions that refer to a subquery by its number do not survive a cut.
    _PLAIN_SUBQUERIES: "false",
    # All joins are distributed by keys; which are broadcast is decided here.
    "datafusion.optimizer.hash_join_single_partition_threshold": "0",
    "datafusion.optimizer.hash_join_single_partition_threshold_rows": "0",
    # Larger files are read by as many tasks as there are partitions.
    "datafusion.optimizer.repartition_file_min_size": str(256 * 2**10),
    "datafusion.explain.show_statistics": "true",
}

_WHOLE = {
    name: _PLANNING[name]
    for name in (
        "datafusion.optimizer.enable_dynamic_filter_pushdown",
        _PLAIN_SUBQUERIES,
        "datafusion.optimizer.repartition_file_min_size",
    )
}
"""What also holds for a plan that one task runs as a whole."""

_BROADCAST_BYTES = 64 * 2**20
Divide = Callable[[int], QueryDivision]
"""Returns how a query is divided that reads so many bytes."""

_ROW_BYTES = 64
"""The size of a broadcast row with its place in a hash table, roughly."""


def plan_query(
    stage: Stage,
    tables: Sequence[Table],
    divide: Divide,
    functions: tuple[UserFunction, ...] = (),
) -> tuple[list[Stage], dict[str, dict[str, Source]]]:
    """Return the stages that run the query of one, and the files that these read.

    The last one has its name. ``divide`` decides by the size of the needed columns how it is
    divided. ``functions`` are those of the user that the query may call. Raises JobError for a
    query that cannot be planned.
    """
    text = stage.spec.job.sql
    assert text is not None, stage
    schemas = {table.name: table.schema for table in tables}
    check_names(functions)
    calls = FunctionCalls(functions)
    with (
        TemporaryDirectory(prefix="mrflight-plan-") as folder,
        translate_errors(KEY_PATH, schemas),
        calls.told(),
    ):
        planned = _Planned(text, tables, divide, Path(folder), calls)
        plan = planned.cut()
        session = PlanSession(planned.options, functions)
        probe = PlanProbe(session.open(), Path(folder))
        by_name = {table.name: table for table in tables}
        stages = SqlStages(stage, by_name, planned.used, session, probe)
        try:
            made = stages.build(plan)
        except KeyTypeError:  # such as a list, by which rows cannot be distributed
            stages = SqlStages(stage, by_name, planned.used, session, probe)
            made = stages.build(planned.whole())
    return made, stages.sources


class _Planned:
    """A query as DataFusion plans it, and the session that has its tables."""

    def __init__(
        self,
        text: str,
        tables: Sequence[Table],
        divide: Divide,
        folder: Path,
        calls: FunctionCalls,
    ) -> None:
        """``calls`` are those of functions with constants, as DataFusion plans the query."""
        self._tables = tables
        self._calls = calls
        self._folder = folder
        *views, self._text = split_statements(text)
        for each in views:
            if not is_view(each):
                raise JobFileError(
                    f"{KEY_PATH}: only `create view NAME as select ...` may come before the query, "
                    f"and not {each[:60]!r}"
                )
        self._views = views
        self._division = divide(sum(table.rows_bytes for table in tables))
        self._exact: Mapping[str, str] = {}
        schemas = {table.name: table.schema for table in tables}
        self._plan(schemas)
        self.used = used_columns(self.rows, schemas)
        is_inexact = any(map(has_floats, schemas.values())) and reads_floats(self.rows, schemas)
        division = divide(sum(table.bytes_of(self.used[table.name]) for table in tables))
        if not is_inexact or division != self._division:
            self._exact = {} if is_inexact else EXACT
            self._division = division
            self._plan(schemas)
        if any(table.scanned is None for table in tables):
            self._leave_columns_out(schemas)

    @property
    def options(self) -> dict[str, str]:
        """The options of DataFusion's session, for planning and for the tasks."""
        return {**(_WHOLE if self._division.is_whole else _PLANNING), **self._exact}

    def _leave_columns_out(self, schemas: Mapping[str, pa.Schema]) -> None:
        """Plan again over the needed columns, unless the query names others as well."""
        needed = {
            name: pa.schema([schema.field(column) for column in self.used[name]])
            for name, schema in schemas.items()
        }
        whole = self._shape
        try:
            self._plan(needed)
            is_same = self._shape == whole
        except Exception:  # DataFusion's only kind; any other cause is raised by planning again
            is_same = False
        if not is_same:
            self.used = {name: list(schema.names) for name, schema in schemas.items()}
            self._plan(schemas)

    @property
    def _shape(self) -> str:
        """The plan as a text, without the numbers of subqueries, which differ each time.

        ``select *`` has other columns without those that are left out, so that the same place in
        ``order by`` or a union may be another column.
        """
        return re.sub(r"__\w+_\d+", "", self.rows.optimized_logical_plan().display_indent())

    def _plan(self, schemas: Mapping[str, pa.Schema]) -> None:
        self._schemas = schemas
        divided = self._division
        partitions = divided.threads if divided.is_whole else divided.partitions
        self._session = PlanSession(self.options).open(self._calls, partitions=partitions)
        self._stand_ins = dict(self._register(self._session, schemas))
        for view in self._views:
            self._session.sql(view)
        self.rows = query(self._session, self._text)

    def _register(
        self, session: SessionContext, schemas: Mapping[str, pa.Schema]
    ) -> Iterator[tuple[str, str]]:
        """Register the tables; yield the files that stand for those which a task gets as rows."""
        for number, table in enumerate(self._tables):
            if table.scanned is not None:
                _register_scanned(session, table.name, table.scanned.location.path)
                continue
            folder = self._folder / f"table-{number}"
            files = self._stand_in(folder, schemas[table.name])
            where = f"stored as arrow location '{folder.as_uri()}/'"
            session.sql(f"create external table {quoted(table.name)} {where}")
            yield from ((file, table.name) for file in files)

    def _stand_in(self, folder: Path, schema: pa.Schema) -> list[str]:
        """Return files without rows, one for each partition.

        From a single file DataFusion would read a single partition, and would not merge partitions
        where an operator needs all rows.
        """
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        count = self._division.partitions
        first, *others = (folder / f"{number}.arrow" for number in range(count))
        with pa.OSFile(str(first), "wb") as file, pa.ipc.new_file(file, with_views(schema)):
            pass
        for other in others:
            other.hardlink_to(first)
        return [str(path) for path in (first, *others)]

    def cut(self) -> FragmentPlan:
        """Return the plan in parts."""
        try:
            plan = self.rows.execution_plan()
        except Exception as error:  # DataFusion raises a bare Exception for all errors
            if "ScalarSubquery" not in str(error):
                raise
            return self._with_subqueries()
        if self._division.is_whole:
            return self.whole()
        explained = query(self._session, f"explain {self._text}").to_pydict()["plan"][-1]
        root = Node(plan, self._session, expected_rows(explained))
        return cut(root, BroadcastLimits(_BROADCAST_BYTES // _ROW_BYTES), self._stand_ins)

    def _with_subqueries(self) -> FragmentPlan:
        """Return the plan for one task: DataFusion cannot make a join of each scalar subquery.

        It cannot where one is in the condition of an outer join.
        """
        self._division = replace(self._division, partitions=1)
        self._exact = {**self._exact, _PLAIN_SUBQUERIES: "true"}
        self._plan(self._schemas)
        return self.whole()

    def whole(self) -> FragmentPlan:
        """Return the plan for one task."""
        node = Node(self.rows.execution_plan(), self._session, iter(()))
        return whole(node, self._stand_ins, self._division.threads)


def _register_scanned(session: SessionContext, name: str, path: str) -> None:
    """Register a Parquet file.

    Its dictionaries are read as their values: these are what tasks send, and cannot be made
    dictionaries again for the rest of the plan.
    """
    session.register_parquet(quoted(name), path)
    schema = pa.schema(session.table(quoted(name)).schema())
    if any(pa.types.is_dictionary(field.type) for field in schema):
        session.deregister_table(quoted(name))
        plain = with_views(canonical_schema(schema))
        session.register_parquet(quoted(name), path, schema=plain)
