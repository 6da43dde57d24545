"""Runs a fragment of a query's plan over the partitions that it reads, and its own file groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import chain

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.compute.layout import to_canonical
from mrflight.compute.schemas import empty_batch
from mrflight.compute.sql.physical.protobuf import replaced
from mrflight.compute.sql.physical.scans import with_groups
from mrflight.compute.sql.physical.session import PlanSession
from mrflight.compute.value_ranges import ScanBounds
from mrflight.shuffle.client.reader import read_partition
from mrflight.sources.base import Split
from mrflight.sources.read_checks import verify_unchanged
from mrflight.system.scratch import ScratchFolder
from mrflight.system.shared_payload import SharedPayload
from mrflight.tasks.broadcast_join import StreamReader
from mrflight.tasks.cogroup import Rows, SlicedTable
from mrflight.tasks.file_groups import FileGroup, GroupSplit, ScannedFile
from mrflight.tasks.fragment_run import FragmentRun, NarrowedPlan
from mrflight.tasks.leaf_file import Leaf
from mrflight.tasks.task_memory import TaskMemory


class Fragment(SharedPayload, msgspec.Struct, frozen=True):
    """A part of DataFusion's plan of a query, as a co-group. Picklable.

    Its rows have columns c0, c1, ..., in plain types.
    """

    plan: bytes
    leaves: tuple[Leaf, ...]
    scans: tuple[bytes, ...]
    """The scans of which a task reads one file group: see `GroupSplit`."""
    files: tuple[ScannedFile, ...]
    """The files of all other scans, which each task reads whole."""
    schema: pa.Schema
    session: PlanSession
    threads: int = 1
    """The threads of a task, which has the memory of so many: no other task runs beside it."""
    task_bytes: int = 0
    """The memory of a task, if it has more than that."""

    def check(self, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
        """Return the schema of the result, which was found as the query was planned."""
        return self.schema

    def sliceable(self, schemas: Mapping[str, pa.Schema]) -> dict[str, bool]:
        """Return the tables that can be sliced, as operators work on their rows one by one."""
        return {leaf.name: False for leaf in self.leaves if leaf.is_sliceable}

    def apply(
        self, tables: Mapping[str, Rows], task_memory: TaskMemory, sliced: SlicedTable | None = None
    ) -> Rows:
        """Return the rows that the plan makes of the partition's tables; see `CoGroup.apply`."""
        return self.schema, self.run(tables, task_memory)

    def run(
        self,
        tables: Mapping[str, Rows],
        task_memory: TaskMemory,
        groups: Sequence[FileGroup] = (),
        bounds: Sequence[ScanBounds] = (),
    ) -> Generator[pa.RecordBatch]:
        """Yield the rows; of each divided scan a task reads one of the ``groups``.

        Of rows beyond the ``bounds`` nothing is needed.

        Raises InputError if a file has changed since the query was planned, and what
        `FragmentRun.rows` does.
        """
        with ExitStack() as stack:
            scratch = stack.enter_context(ScratchFolder("sql", task_memory.folder))
            plan, scans = self.plan, list[bytes]()
            for scan, group in zip(self.scans, groups, strict=True):
                scans.append(with_groups(scan, [group.encoded]))
                plan = replaced(plan, scan, scans[-1])
            for scanned in chain(self.files, *(group.files for group in groups)):
                stack.enter_context(verify_unchanged(scanned.location, scanned.version))
            rows = {name: batches for name, (_, batches) in tables.items()}
            memory_bytes = self.task_bytes or task_memory.memory_bytes * self.threads
            memory = replace(task_memory, memory_bytes=memory_bytes)
            run = FragmentRun(self.leaves, self.session, memory, scratch)
            made = run.rows(NarrowedPlan(plan, tuple(scans)), rows, bounds)
            with closing(made):
                for batch in made:
                    yield self._named(batch)

    def _named(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of the plan with the names and types that they are sent with."""
        if not batch.num_columns:
            columns = [pa.nulls(batch.num_rows, field.type) for field in self.schema]
            return pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return to_canonical(batch.rename_columns(self.schema.names), self.schema)


@dataclass
class FragmentReader(StreamReader):
    """Reads the rows that a fragment makes of a file group of its scans, with broadcast tables."""

    bounds: tuple[ScanBounds, ...] = ()
    """What is needed of the scans."""

    def within(self, bounds: tuple[ScanBounds, ...]) -> FragmentReader:
        """Return a reader of the rows that are needed."""
        return dataclasses.replace(self, bounds=bounds)

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yield the rows; without any, an empty batch."""
        with ExitStack() as stack:
            tables: dict[str, Rows] = {}
            for table in self.tables:
                side = table.side
                connections = stack.enter_context(side.shuffle.connections())
                (info,) = table.partition.infos
                tables[side.name] = side.schema, read_partition(side.shuffle.key, info, connections)
            assert isinstance(self.cogroup, Fragment)
            yield empty_batch(self.cogroup.schema)
            groups = split.groups if isinstance(split, GroupSplit) else ()
            made = self.cogroup.run(tables, self.task_memory, groups, self.bounds)
            with closing(made) as rows:
                yield from rows
