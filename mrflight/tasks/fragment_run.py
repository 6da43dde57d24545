"""Runs a plan over the rows of its leaves, in as many parts as its joins need to fit into memory.

DataFusion's hash joins do not spill (55). But a plan that runs on the partitions of its inputs runs
on any other number of partitions as well. So if a join would hold too many rows, those of all
leaves are divided by further bits of their keys' hashes, and the plan runs on one part after the
other. These are the grace joins of Kitsuregawa, Tanaka and Moto-Oka, "Application of hash to data
base machine and its architecture" (1983), for plans of any operators.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.compute.sql.engine import error_text
from mrflight.compute.sql.physical.protobuf import replaced
from mrflight.compute.sql.physical.scan_bounds import with_bounds
from mrflight.compute.sql.physical.scans import reading
from mrflight.compute.sql.physical.session import PlanSession
from mrflight.compute.sql.user_functions import FunctionCalls
from mrflight.compute.value_ranges import ScanBounds
from mrflight.errors import JobFileError, MemoryLimitError, MrflightError
from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.leaf_file import Leaf, LeafFile
from mrflight.tasks.operator_counts import count_operators
from mrflight.tasks.operators.spill_partitions import (
    SPILL_FANOUT,
    RowBuffer,
    SpillPartition,
    hash_partitioner,
    spill,
)
from mrflight.tasks.operators.sql_reduce import HELD_FRACTION, POOL_FRACTION
from mrflight.tasks.operators.sql_run import pool_limits
from mrflight.tasks.task_memory import TaskMemory
from mrflight.units import format_bytes

if TYPE_CHECKING:
    from datafusion import SessionContext

_NO_MEMORY = ("Resources exhausted", "Not enough memory")

_ROW_BYTES = 256
"""The bytes of a row, roughly: it decides how many rows a batch has where memory is short."""

_MAX_LEVEL = 3
"""The number of times that rows are divided, each time in `SPILL_FANOUT` parts. A part that is
still too large has many rows of one key, which no hash divides."""

Tables = Mapping[str, Iterator[pa.RecordBatch]]
"""The rows of the leaves by their names; they can be read once."""


class NarrowedPlan(msgspec.Struct, frozen=True):
    """A plan whose divided scans read what one task is to read."""

    encoded: bytes
    scans: tuple[bytes, ...]

    def bounded(self, bounds: Iterable[ScanBounds], session: SessionContext) -> NarrowedPlan:
        """Return the plan with scans that leave out what is beyond the bounds."""
        encoded, scans = self.encoded, list(self.scans)
        for each in bounds:
            scan = scans[each.scan]
            if scans.count(scan) == 1:
                scans[each.scan] = with_bounds(scan, each, session)
                encoded = replaced(encoded, scan, scans[each.scan])
        return NarrowedPlan(encoded, tuple(scans))


class FragmentRun:
    """Runs plans with these leaves, within the memory of a task."""

    def __init__(
        self,
        leaves: Sequence[Leaf],
        session: PlanSession,
        task_memory: TaskMemory,
        scratch: ScratchFolder,
    ) -> None:
        self._plan_session = session
        self._memory = task_memory
        self._scratch = scratch
        self._whole = [leaf for leaf in leaves if leaf.keys is None]
        divided = [leaf for leaf in leaves if leaf.keys is not None]
        self._divided = sorted(divided, key=lambda leaf: not leaf.is_held)
        self._can_divide = any(leaf.keys and leaf.is_held for leaf in divided)
        self._spilled = 0

    def rows(
        self, plan: NarrowedPlan, tables: Tables, bounds: Sequence[ScanBounds] = ()
    ) -> Generator[pa.RecordBatch]:
        """Yield the rows that a plan makes of the tables, in batches that have rows.

        Of rows beyond the ``bounds`` nothing is needed.

        Raises JobFileError for values that the query cannot take, MemoryLimitError if memory does
        not suffice, and JobFailedError if files cannot be written.
        """
        with ExitStack() as stack:
            held = self._memory.memory_bytes // HELD_FRACTION
            files = []
            for leaf in self._whole:
                file = stack.enter_context(LeafFile(leaf, self._scratch))
                file.write(tables[leaf.name], held)
                held = max(0, held - file.bytes)
                files.append(file)
            bounds = [*bounds, *(each for file in files for each in file.scan_bounds())]
            if bounds:
                plan = plan.bounded(bounds, self._plan_session.open())
            encoded = plan.encoded
            for file in files:
                encoded = _with_file(encoded, file)
            yield from self._part(encoded, tables, held, 0)

    def _part(
        self, plan: bytes, tables: Tables, memory_bytes: int, level: int
    ) -> Generator[pa.RecordBatch]:
        """Yield the rows for a part of the tables; these hold up to ``memory_bytes``."""
        may_divide = self._can_divide and level < _MAX_LEVEL
        with ExitStack() as stack:
            files = [stack.enter_context(LeafFile(each, self._scratch)) for each in self._divided]
            if may_divide and self._joins_too_much(files, tables):
                rest = {
                    each.leaf.name: chain(each.batches(), tables[each.leaf.name]) for each in files
                }
                yield from self._parts(plan, rest, memory_bytes, level)
                return
            divided = plan
            for file in files:
                file.write(tables[file.leaf.name], memory_bytes)
                memory_bytes = max(0, memory_bytes - file.bytes)
                divided = _with_file(divided, file)
            has_begun = False
            try:
                for batch in self._execute(divided):
                    has_begun = True
                    yield batch
                return
            except MemoryLimitError:
                if has_begun or not may_divide:
                    raise
            again = {each.leaf.name: each.batches() for each in files}
            yield from self._parts(plan, again, memory_bytes, level)

    def _joins_too_much(self, files: Sequence[LeafFile], tables: Tables) -> bool:
        """Fill the files of the rows that joins hold, unless these are more than fit."""
        room = self._memory.rows_bytes
        for file in files:
            if file.leaf.is_held and file.fill(tables[file.leaf.name], room):
                return True
            room -= file.bytes
        return False

    def _parts(
        self, plan: bytes, tables: Tables, memory_bytes: int, level: int
    ) -> Generator[pa.RecordBatch]:
        """Divide the tables, and yield the rows for one part after the other."""
        parts = {leaf.name: self._spill(leaf, tables[leaf.name], level) for leaf in self._divided}
        for number in range(SPILL_FANOUT):
            part = {name: each[number] for name, each in parts.items() if number in each}
            if part:
                rows = {name: part[name].batches() if name in part else iter(()) for name in parts}
                yield from self._part(plan, rows, memory_bytes, level + 1)

    def _spill(
        self, leaf: Leaf, rows: Iterator[pa.RecordBatch], level: int
    ) -> dict[int, SpillPartition]:
        """Write rows to the parts that they belong to. Return those with rows by their numbers."""
        assert leaf.keys is not None, leaf
        self._spilled += 1
        writer = hash_partitioner(self._scratch, f"part-{self._spilled}", leaf.keys, level)
        parts = spill(rows, RowBuffer(), writer, self._memory.rows_bytes)
        return {part.number: part for part in parts}

    def _execute(self, plan: bytes) -> Iterator[pa.RecordBatch]:
        from datafusion import ExecutionPlan

        calls = FunctionCalls(self._plan_session.functions)
        try:
            session = self._session(calls)
            node = ExecutionPlan.from_bytes(session, plan)
            for partition in range(node.partition_count):
                for part in session.execute(node, partition):
                    batch = part.to_pyarrow()
                    if batch.num_rows:
                        yield batch
            count_operators(node)
        except MrflightError:
            raise
        except Exception as error:  # DataFusion raises a bare Exception for all errors
            raise (calls.cause_of(error) or self._translated(error)) from error

    def _session(self, calls: FunctionCalls) -> SessionContext:
        from datafusion import RuntimeEnvBuilder

        runtime = RuntimeEnvBuilder().with_disk_manager_specified(str(self._scratch.path))
        pool_bytes = self._memory.memory_bytes // POOL_FRACTION
        options = {**self._plan_session.options, **pool_limits(pool_bytes, _ROW_BYTES)}
        session = replace(self._plan_session, options=options)
        return session.open(calls, runtime=runtime.with_fair_spill_pool(pool_bytes))

    def _translated(self, error: Exception) -> MrflightError:
        words = error_text(error)
        if any(sign in words for sign in _NO_MEMORY):
            return MemoryLimitError(
                f"sql: a task of this query needs more than "
                f"{format_bytes(self._memory.memory_bytes)}; set more shuffle.partitions, or a "
                f"larger cluster.memory ({words})"
            )
        return JobFileError(f"sql: {words}")


def _with_file(plan: bytes, file: LeafFile) -> bytes:
    """Return a plan that reads a file in place of a leaf."""
    path, size_bytes = file.finish()
    return replaced(plan, file.leaf.scan, reading(file.leaf.scan, path, size_bytes))
