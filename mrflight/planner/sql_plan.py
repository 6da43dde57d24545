"""Plans a query over the inputs of a job: where DataFusion's plan is cut, and the stages of it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec.structs import replace

from mrflight.compute.layout import canonical_schema
from mrflight.compute.sql.engine import EXACT, query, quoted, translate_errors
from mrflight.compute.sql.physical.fragment_plan import FragmentPlan
from mrflight.compute.sql.physical.fragments import cut, whole
from mrflight.compute.sql.physical.limits import Limits, held_bytes
from mrflight.compute.sql.physical.nodes import Node, expected_rows
from mrflight.compute.sql.physical.probe import PlanProbe, with_views
from mrflight.compute.sql.physical.scans import files_of, of_arrow
from mrflight.compute.sql.physical.session import PlanSession
from mrflight.compute.sql.plans import count_scans, has_floats, reads_floats, used_columns
from mrflight.compute.sql.statements import is_view, split_statements
from mrflight.compute.sql.user_functions import FunctionCalls, UserFunction, check_names
from mrflight.errors import JobFileError, KeyTypeError
from mrflight.planner.partition_count import EXPECTED_TO_FIT, QueryDivision
from mrflight.planner.scanned_files import ScannedFiles, link_files
from mrflight.planner.sql_stages import SqlStages, Table
from mrflight.planner.stages import Stage
from mrflight.planner.stand_ins import StandIn
from mrflight.sources.base import Source
from mrflight.system.scratch import ScratchFolder, temporary_folder
from mrflight.tasks.file_groups import ScannedFile

if TYPE_CHECKING:
    from datafusion import SessionContext

KEY_PATH = "job.sql"

_PLAIN_SUBQUERIES = "datafusion.optimizer.enable_physical_uncorrelated_scalar_subquery"

_MIN_DIVIDED_BYTES = "datafusion.optimizer.repartition_file_min_size"

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
    _MIN_DIVIDED_BYTES: str(256 * 2**10),
    # As our readers read them. In nanoseconds not every year can be said.
    "datafusion.execution.parquet.coerce_int96": "us",
    "datafusion.explain.show_statistics": "true",
}

_WHOLE = {
    name: _PLANNING[name]
    for name in (
        "datafusion.optimizer.enable_dynamic_filter_pushdown",
        _PLAIN_SUBQUERIES,
        _MIN_DIVIDED_BYTES,
        "datafusion.execution.parquet.coerce_int96",
    )
}
"""What also holds for a plan that one task runs as a whole."""

Divide = Callable[[int], QueryDivision]
"""Returns how a query is divided that reads so many bytes."""

_ROW_BYTES = 64
"""The size of a broadcast row with its place in a hash table, roughly."""
_FEW_SORTED_ROWS = 200_000
"""The rows that one task sorts in the time that a sample of them takes."""


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
        ScratchFolder("plan", temporary_folder()) as scratch,
        translate_errors(KEY_PATH, schemas),
        calls.raising_cause(),
    ):
        planned = _Planned(text, tables, divide, scratch.path, calls)
        plan = planned.cut(is_written=stage.spec.has_output)
        session = PlanSession(planned.options, functions)
        probe = PlanProbe(session.open(), scratch.path)
        by_name = {each.name: each._replace(needed=planned.used[each.name]) for each in tables}
        stages = SqlStages(stage, by_name, planned.scanned, session, probe)
        try:
            made = stages.build(plan)
        except KeyTypeError:  # such as a list, by which rows cannot be distributed
            stages = SqlStages(stage, by_name, planned.scanned, session, probe)
            made = stages.build(planned.whole("a key has no hash, as lists and structs"))
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
        self._expects_rows = True
        self.scanned = self._link_files()
        schemas = {table.name: table.schema for table in tables}
        may_read_floats = any(map(has_floats, schemas.values()))
        if not may_read_floats:
            self._exact = EXACT
        self._plan(schemas)
        self.used = used_columns(self.rows, schemas)
        is_inexact = may_read_floats and reads_floats(self.rows, schemas)
        exact = {} if is_inexact else EXACT
        division = divide(sum(table.bytes_of(self.used[table.name]) for table in tables))
        if (exact, division) != (self._exact, self._division):
            self._exact, self._division = exact, division
            self._plan(schemas)
        if not self._reads_files:
            self._leave_columns_out(schemas)

    @property
    def options(self) -> dict[str, str]:
        """The options of DataFusion's session, for planning and for the tasks."""
        return {**(_WHOLE if self._division.is_whole else _PLANNING), **self._exact}

    def _link_files(self) -> ScannedFiles:
        """Make folders of links to the files that DataFusion reads by itself."""
        links: dict[str, ScannedFile] = {}
        for table in self._tables:
            if table.scanned:
                links |= link_files(self._folder_of(table), table.scanned)
        return ScannedFiles(links, int(_PLANNING[_MIN_DIVIDED_BYTES]))

    def _folder_of(self, table: Table) -> Path:
        return self._folder / f"table-{self._tables.index(table)}"

    def _leave_columns_out(self, schemas: Mapping[str, pa.Schema]) -> None:
        """Plan again over the needed columns, unless the query names others as well."""
        needed = {
            name: pa.schema([schema.field(column) for column in self.used[name]])
            for name, schema in schemas.items()
        }
        whole = self._shape
        self._open(needed)
        try:
            self._plan_text()
            is_same = self._shape == whole
        except Exception:  # DataFusion raises a bare Exception, here for a column that is left out
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
        self._open(schemas)
        self._plan_text()

    def _open(self, schemas: Mapping[str, pa.Schema]) -> None:
        """Open a session that has the tables with these columns."""
        self._schemas = schemas
        divided = self._division
        partitions = divided.threads if divided.is_whole else divided.partitions
        self._session = PlanSession(self.options).open(self._calls, partitions=partitions)
        self._stand_ins = dict(self._register(self._session, schemas))

    def _plan_text(self) -> None:
        for view in self._views:
            self._session.sql(view)
        self.rows = query(self._session, self._text)

    def _register(
        self, session: SessionContext, schemas: Mapping[str, pa.Schema]
    ) -> Iterator[tuple[str, str]]:
        """Register the tables; yield the files that stand for those which a task gets as rows."""
        for table in self._tables:
            folder = self._folder_of(table)
            if table.scanned:
                _register_scanned(session, table.name, f"{folder.as_uri()}/")
                continue
            rows = table.rows if self._expects_rows else None
            stand_in = StandIn(table.name, folder, self._division.partitions, rows)
            files = stand_in.register(session, schemas[table.name])
            yield from ((file, table.name) for file in files)

    def cut(self, *, is_written: bool) -> FragmentPlan:
        """Return the plan in parts; the rows of one that is written need not be read in order."""
        try:
            root = self._root()
        except Exception as error:  # DataFusion raises a bare Exception for all errors
            if "ScalarSubquery" not in str(error):
                raise
            return self._with_subqueries()
        if self._lacks_scans(root):
            self._expect_no_rows()
            root = self._root()
        if self._is_expected_to_fit(root):
            self._division = replace(self._division, partitions=1, why_whole=EXPECTED_TO_FIT)
            self._plan(self._schemas)
            root = self._root()
        division = self._division
        if division.is_whole:
            made = whole(root, self._stand_ins, division.threads, division.why_whole)
            return replace(made, task_bytes=division.task_bytes if self._reads_files else 0)
        sorted_rows = _FEW_SORTED_ROWS if is_written else sys.maxsize
        limits = Limits(self._division.broadcast_bytes // _ROW_BYTES, sorted_rows)
        return cut(root, limits, self._stand_ins)

    def _is_expected_to_fit(self, root: Node) -> bool:
        """Return whether one task may run a query whose rows do not fit into its memory."""
        limit = self._division.held_bytes
        return bool(limit) and self._reads_files and held_bytes(root) <= limit

    @property
    def _reads_files(self) -> bool:
        """True if DataFusion reads all tables by itself."""
        return all(table.scanned for table in self._tables)

    def _root(self) -> Node:
        """Return the plan with the expected rows of its nodes."""
        plan, rows = self.rows.execution_plan(), None
        if not self._division.is_whole:
            explained = query(self._session, f"explain {self._text}").to_pydict()["plan"][-1]
            rows = expected_rows(explained)
        return Node(plan, self._session, rows or iter(()), self._edited)

    def _edited(self, scan: bytes) -> bytes:
        """Return what is in the plan in place of a scan of files, or of what stands for a table."""
        return of_arrow(scan) if files_of(scan)[0] in self._stand_ins else self.scanned.named(scan)

    def _lacks_scans(self, root: Node) -> bool:
        """Return whether DataFusion took an estimate for a fact.

        It answers ``count(*)`` by the rows of files without a look into them.
        """
        fed = [table.name for table in self._tables if not table.scanned]
        scans = (node for node in root.walk() if node.is_scan)
        found = sum(node.scanned_file in self._stand_ins for node in scans)
        return found < count_scans(self.rows, fed)

    def _expect_no_rows(self) -> None:
        """Plan again without estimates."""
        self._expects_rows = False
        self._plan(self._schemas)

    def _with_subqueries(self) -> FragmentPlan:
        """Return the plan for one task: DataFusion cannot make a join of each scalar subquery.

        It cannot where one is in the condition of an outer join.
        """
        self._division = replace(self._division, partitions=1)
        self._exact = {**self._exact, _PLAIN_SUBQUERIES: "true"}
        return self.whole("a subquery of one value is in the condition of an outer join")

    def whole(self, why: str) -> FragmentPlan:
        """Return the plan for one task; ``why`` it cannot be divided is for people."""
        self._expect_no_rows()
        return whole(self._root(), self._stand_ins, self._division.threads, why)


def _register_scanned(session: SessionContext, name: str, path: str) -> None:
    """Register Parquet files.

    Their dictionaries are read as their values: these are what tasks send, and cannot be made
    dictionaries again for the rest of the plan.
    """
    session.register_parquet(quoted(name), path)
    schema = pa.schema(session.table(quoted(name)).schema())
    if any(pa.types.is_dictionary(field.type) for field in schema):
        session.deregister_table(quoted(name))
        plain = with_views(canonical_schema(schema))
        session.register_parquet(quoted(name), path, schema=plain)
