"""Makes the stages of a query from the fragments of its plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, repeat, takewhile
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from msgspec.structs import replace

from mrflight.compute.layout import canonical_schema
from mrflight.compute.sorting import has_order
from mrflight.compute.sql.physical.fragment_plan import Exchange, FragmentPlan
from mrflight.compute.sql.physical.hash_keys import with_computed
from mrflight.compute.sql.physical.ordering import OrderKey
from mrflight.compute.sql.physical.probe import PlanProbe, positional, with_views
from mrflight.compute.sql.physical.protobuf import replaced
from mrflight.compute.sql.physical.scan_bounds import ScanColumn
from mrflight.compute.sql.physical.scans import narrowed, reading, with_groups
from mrflight.compute.sql.physical.session import PlanSession
from mrflight.compute.value_ranges import has_bounds
from mrflight.config.input_spec import InputSpec
from mrflight.config.output_section import NO_OUTPUT
from mrflight.config.sort_key import SortKey, columns_of
from mrflight.planner.fragment_stage import FILES, FragmentStage
from mrflight.planner.scanned_files import ScannedFiles
from mrflight.planner.stages import Stage
from mrflight.sources.base import Source
from mrflight.tasks.file_groups import FileGroup, GroupSplit, ScannedFile
from mrflight.tasks.fragment import Fragment
from mrflight.tasks.leaf_file import Leaf, LeafBound
from mrflight.tasks.partitioner import PartitionerSpec

if TYPE_CHECKING:
    pass

_NO_GROUP = 2**31
"""The number of a file group that no scan has: it reads nothing."""


class Table(NamedTuple):
    """A table of a query."""

    name: str
    schema: pa.Schema
    section: InputSpec
    source: Source | None
    """None if it is the result of another stage."""
    scanned: tuple[ScannedFile, ...]
    """The Parquet files that DataFusion reads by itself; none if a task gets the rows from the
    input's reader or from another stage."""
    rows_bytes: int
    """The size of all columns in memory, roughly."""
    rows: int | None
    """About how many rows it has; None if that is not known."""
    needed: Sequence[str] = ()
    """The columns that the query needs, once that is known."""

    def bytes_of(self, columns: Sequence[str]) -> int:
        """Return the size of some columns in memory, roughly."""
        return self.rows_bytes * len(columns) // max(1, len(self.schema))


class SqlStages:
    """Makes the stages of one query."""

    def __init__(
        self,
        stage: Stage,
        tables: Mapping[str, Table],
        scanned: ScannedFiles,
        session: PlanSession,
        probe: PlanProbe,
    ) -> None:
        self._query = stage
        self._spec = stage.spec
        self._tables = tables
        self._scanned = scanned
        self._session = session
        self._probe = probe
        self._stages: list[Stage] = []
        self.sources: dict[str, dict[str, Source]] = {}
        """The inputs of each stage that are files."""
        self._names: dict[int, str] = {}
        self._schemas: dict[int, pa.Schema] = {}

    def build(self, root: FragmentPlan) -> list[Stage]:
        """Return the stages, each after those whose rows it reads.

        Raises KeyTypeError if rows cannot be distributed by the keys of the plan.
        """
        self._add(root, is_root=True)
        tables = self._scanned_tables()
        self.sources[self._query.name] |= {
            name: source for name in tables if (source := self._tables[name].source) is not None
        }
        return self._stages

    def _scanned_tables(self) -> dict[str, InputSpec]:
        """Return the tables that DataFusion reads by itself."""
        tables = self._tables.items()
        return {name: table.section for name, table in tables if table.scanned}

    def _add(self, plan: FragmentPlan, *, is_root: bool = False) -> None:
        if id(plan) in self._names:
            return
        for each in plan.inputs:
            if isinstance(each.exchange.source, FragmentPlan):
                self._add(each.exchange.source)
        encoded, leaves, exchanges = self._with_leaves(plan)
        scans = list(dict.fromkeys(plan.scans + plan.small_scans))
        schema = self._schema_of(encoded, leaves, scans)
        if plan.computed:
            encoded = with_computed(encoded, schema.names, plan.computed)
            schema = self._schema_of(encoded, leaves, scans)
        self._schemas[id(plan)] = schema
        files: list[ScannedFile] = []
        for scan in scans:
            if scan not in plan.divided:
                groups = self._scanned.groups(scan)
                encoded = replaced(encoded, scan, with_groups(scan, [g.encoded for g in groups]))
                files += (file for group in groups for file in group.files)
        made = canonical_schema(schema)
        fragment = Fragment(
            encoded,
            tuple(leaves),
            plan.divided,
            tuple(dict.fromkeys(files)),
            made if is_root else positional(made),
            self._session.of(encoded),
            plan.threads,
            plan.task_bytes,
        )
        name = self._query.name
        if not is_root:
            name = f"{name or 'job'}.sql-{len(self._stages) + 1}"
        self._names[id(plan)] = name
        self._stages.append(self._stage(name, plan, fragment, exchanges))
        self.sources[name] = {
            side: replace(source, name=side)
            for side, exchange in exchanges.items()
            if isinstance(exchange.source, str)
            and (source := self._tables[exchange.source].source) is not None
        }

    def _splits(self, plan: FragmentPlan) -> tuple[GroupSplit, ...]:
        """Return what each task reads of the files that are divided among the tasks."""
        scans = [self._scanned.groups(scan) for scan in plan.divided]
        tasks = zip(*(_padded(each, plan.tasks) for each in scans), strict=True)
        splits = (GroupSplit(FILES, n, n + 1, 1, groups=groups) for n, groups in enumerate(tasks))
        return tuple(splits) or (GroupSplit(FILES, 0, 1, 1),)

    def _with_leaves(self, plan: FragmentPlan) -> tuple[bytes, list[Leaf], dict[str, Exchange]]:
        """Return the plan with scans in place of its inputs, and the inputs by their names."""
        encoded, leaves = plan.encoded, list[Leaf]()
        exchanges: dict[str, Exchange] = {}
        held = {each.part for each in plan.inputs if each.is_held}
        read = Counter(each.part for each in plan.inputs)
        sliceable = {each.part for each in plan.inputs if each.is_sliceable}
        # What tells the keys of few rows is sent before the rows that are tested against them.
        for part, exchange in sorted(plan.exchanges.items(), key=_expected_rows):
            name = exchange.source if isinstance(exchange.source, str) else "rows"
            name = name if name not in exchanges else f"{name}_{len(leaves) + 1}"
            leaf = self._leaf(name, part, exchange)
            leaf = replace(
                leaf,
                keys=self._keys(exchange, plan.tasks),
                is_held=part in held,
                is_sliceable=part in sliceable and read[part] == 1,
                bounds=tuple(self._leaf_bounds(plan, part, leaf.schema)),
            )
            encoded = replaced(encoded, part, leaf.scan)
            leaves.append(leaf)
            exchanges[name] = exchange
        return encoded, leaves, exchanges

    def _leaf_bounds(
        self, plan: FragmentPlan, part: bytes, schema: pa.Schema
    ) -> Iterator[LeafBound]:
        """Yield which columns of a leaf have all values that are needed of columns of scans."""
        for given in plan.inputs:
            for column, scanned in given.bounds if given.part == part else ():
                field, place = schema.field(column), self._place(plan, scanned)
                if place is not None and has_bounds(field.type):
                    yield LeafBound(field.name, *place)

    @staticmethod
    def _place(plan: FragmentPlan | str, column: ScanColumn | None) -> tuple[int, bytes] | None:
        """Return the position of a scan of which each task reads a part, and the column's bytes."""
        if isinstance(plan, str) or column is None or plan.tasks == 1:
            return None
        if plan.scans.count(column.scan) != 1:
            return None
        return list(dict.fromkeys(plan.scans)).index(column.scan), column.column

    def _leaf(self, name: str, part: bytes, exchange: Exchange) -> Leaf:
        if isinstance(exchange.source, str):
            table = self._tables[exchange.source]
            fields = [table.schema.field(column) for column in table.needed]
            return Leaf(name, reading(part, f"/{name}", 0), with_views(pa.schema(fields)))
        sent = self._schemas[id(exchange.source)]
        planned = pa.schema(list(sent)[: len(sent) - len(exchange.source.computed)])
        return Leaf(name, self._probe.scan(planned, f"/{name}"), positional(sent))

    def _schema_of(
        self, encoded: bytes, leaves: Sequence[Leaf], files: Sequence[bytes]
    ) -> pa.Schema:
        for leaf in leaves:
            encoded = replaced(encoded, leaf.scan, self._probe.empty_scan(leaf.scan))
        for scan in files:
            encoded = replaced(encoded, scan, narrowed(scan, _NO_GROUP))
        return self._probe.schema(encoded)

    def _stage(
        self,
        name: str,
        plan: FragmentPlan,
        fragment: Fragment,
        exchanges: Mapping[str, Exchange],
    ) -> Stage:
        tasks = plan.tasks
        lines = ("ProjectionExec: keys", *plan.lines) if plan.computed else plan.lines
        streamed = _streamed(tasks, exchanges)
        inputs = {}
        for side, exchange in exchanges.items():
            is_broadcast = exchange.way == "gather" and tasks > 1
            if isinstance(exchange.source, str):
                section = self._tables[exchange.source].section
                section = replace(section, sql_table=section.sql_table or exchange.source)
            else:
                section = InputSpec(stage=self._names[id(exchange.source)])
            inputs[side] = replace(section, broadcast=True if is_broadcast else None)
        if streamed == FILES:
            inputs[FILES] = InputSpec()
        made = FragmentStage(
            fragment,
            {side: self._partitioner(each, tasks) for side, each in exchanges.items()},
            {
                side: self._tables[exchange.source].needed
                for side, exchange in exchanges.items()
                if isinstance(exchange.source, str)
            },
            streamed,
            tasks,
            self._splits(plan),
            self._scanned_tables() if name == self._query.name else {},
            [self._scanned.shown(line) for line in self._probe.lines(fragment.plan, lines)],
            _filtered_by(plan, exchanges),
            {side: exchange.rows for side, exchange in exchanges.items()},
            plan.why_whole,
            {
                name: tuple(self._place(given.exchange.source, column) for column in given.scanned)
                for given in plan.inputs
                if given.scanned
                for name, exchange in exchanges.items()
                if exchange is given.exchange
            },
        )
        shuffle = replace(self._spec.shuffle, partitions=tasks)
        output = self._spec.output if name == self._query.name else NO_OUTPUT
        job = replace(
            self._spec,
            job=replace(self._spec.job, sql=None),
            inputs=inputs,
            shuffle=shuffle,
            reduce=None,
            output=output,
        )
        return Stage(name, self._query.section, job, f"sql {len(self._stages) + 1}", made)

    def _keys(self, exchange: Exchange, tasks: int) -> tuple[str, ...] | None:
        """Return the columns by which rows are distributed; None if a task has all of them."""
        if tasks == 1 or exchange.way == "gather":
            return None
        if isinstance(exchange.source, str):
            return ()
        names = positional(self._schemas[id(exchange.source)]).names
        return tuple(names[key] for key in exchange.keys)

    def _partitioner(self, exchange: Exchange, tasks: int) -> PartitionerSpec:
        if tasks == 1 or exchange.way in ("gather", "first"):
            return PartitionerSpec("one", (), tasks)
        if exchange.way == "any":
            return PartitionerSpec("round_robin", (), tasks)
        if exchange.way == "range":
            return _ranges(exchange.order, self._schemas[id(exchange.source)], tasks)
        keys = self._keys(exchange, tasks)
        assert keys, exchange
        made = PartitionerSpec("hash", keys, tasks)
        made.check(positional(self._schemas[id(exchange.source)]))
        return made


def _ranges(order: Sequence[OrderKey], schema: pa.Schema, tasks: int) -> PartitionerSpec:
    """Return a partitioner by the first keys that have an order here."""
    keys = takewhile(lambda key: has_order(schema.types[key.column]), order)
    sort_keys = tuple(SortKey(f"c{key.column}", key.descending, key.nulls_first) for key in keys)
    if not sort_keys:
        return PartitionerSpec("one", (), tasks)
    return PartitionerSpec("range", tuple(columns_of(sort_keys)), tasks, sort_keys=sort_keys)


def _padded(groups: Sequence[FileGroup], count: int) -> Iterator[FileGroup]:
    """Yield so many groups, of which the last ones may have no files."""
    return islice(chain(groups, repeat(FileGroup())), count)


def _streamed(tasks: int, exchanges: Mapping[str, Exchange]) -> str | None:
    """Return the input whose splits are the tasks; None if its partitions are."""
    fed = {side: exchange for side, exchange in exchanges.items() if exchange.way != "gather"}
    if len(fed) == 1:
        ((side, exchange),) = fed.items()
        return side if isinstance(exchange.source, str) else None
    if fed or (tasks == 1 and exchanges):
        return None
    return FILES


def _expected_rows(given: tuple[bytes, Exchange]) -> float:
    _, exchange = given
    return float("inf") if exchange.rows is None else exchange.rows


def _filtered_by(plan: FragmentPlan, exchanges: Mapping[str, Exchange]) -> dict[str, str]:
    """Return the inputs whose rows are sent only if another one has their keys.

    An input that several operators read is sent whole.
    """
    names = {id(exchange): name for name, exchange in exchanges.items()}
    read = Counter(each.part for each in plan.inputs)
    by_part = {part: names[id(exchange)] for part, exchange in plan.exchanges.items()}
    return {
        by_part[each.part]: by_part[each.matched_by.part]
        for each in plan.inputs
        if each.matched_by is not None and read[each.part] == 1 and plan.tasks > 1
    }
