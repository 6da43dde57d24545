"""A part of a query's plan as a stage: its tasks, and how the rows of its inputs reach them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from mrflight.config.functions import FunctionRef
from mrflight.config.input_spec import InputSpec
from mrflight.sources.base import Source
from mrflight.tasks.broadcast_join import StreamReader
from mrflight.tasks.file_groups import FileGroups, GroupSplit
from mrflight.tasks.fragment import Fragment, FragmentReader
from mrflight.tasks.partitioner import PartitionerSpec
from mrflight.tasks.runtime_filter import RuntimeFilter, ScannedKeys, filter_bits

if TYPE_CHECKING:
    from mrflight.planner.cogroup_plan import StreamedSide
    from mrflight.tasks.mapper import RowMap

FILES = "files"
"""The name of the input that stands for the files that a fragment reads by itself."""


class FragmentStage(msgspec.Struct, frozen=True):
    """A fragment of a query, and how the rows of its inputs are distributed to its tasks."""

    fragment: Fragment
    partitioners: Mapping[str, PartitionerSpec]
    """The partitioner of each input that is not broadcast."""
    columns: Mapping[str, Sequence[str]]
    """The columns that are needed of inputs that are tables."""
    streamed: str | None
    """The input whose splits are the tasks, to each of which all others are sent."""

    tasks: int
    splits: Sequence[GroupSplit]
    """What each of the tasks reads of the files that it reads by itself."""
    tables: Mapping[str, InputSpec]
    """The tables whose files it, or a fragment before it, reads by itself."""
    lines: Sequence[str]
    """The nodes of its plan, for people."""
    filtered_by: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The inputs whose rows are sent only with keys that another input has."""
    expected_rows: Mapping[str, int | None] = msgspec.field(default_factory=dict)
    """How many rows of an input are expected; None if that is not known."""
    why_whole: str = ""
    """Why one task runs the whole query; empty if it was cut."""
    scanned: Mapping[str, ScannedKeys] = msgspec.field(default_factory=dict)
    """The columns of scans that are the keys of an input."""

    @property
    def reads_files(self) -> bool:
        """True if its tasks are groups of the files that it reads by itself."""
        return self.streamed == FILES

    @property
    def functions(self) -> set[FunctionRef]:
        """The users' functions that the query calls."""
        return {each.ref for each in self.fragment.session.functions}

    @property
    def own_sources(self) -> dict[str, Source]:
        """What stands for the files that the fragment reads by itself, a split for each task."""
        if not self.reads_files:
            return {}
        files = FileGroups(self.fragment.schema)
        return {FILES: Source(FILES, files, (), len(self.splits), tuple(self.splits))}

    @property
    def runtime_filters(self) -> dict[str, RuntimeFilter]:
        """What the maps of inputs do about the keys of another one."""
        noted = set(self.filtered_by.values())
        return {
            name: RuntimeFilter(
                self.partitioners[name].key,
                filter_bits(self.expected_rows[name]) if name in noted else 0,
                scanned=self.scanned.get(name, ()),
            )
            for name in noted | self.filtered_by.keys()
        }

    def needed(self, name: str) -> set[str] | None:
        """Return the columns that are needed of an input; None for all."""
        return set(self.columns[name]) if name in self.columns else None

    def sent(self, name: str) -> str:
        """Return how the rows of an input are distributed, for people."""
        partitioner = self.partitioners[name]
        if name == self.streamed:
            return "read where they are needed"
        if partitioner.kind == "range":
            return f"by ranges of {', '.join(map(str, partitioner.sort_keys))}"
        if partitioner.kind == "hash":
            only = f", if {other} has them" if (other := self.filtered_by.get(name)) else ""
            return f"by the hash of {', '.join(partitioner.key)}{only}"
        return "to one task" if partitioner.kind == "one" else "in turn"

    def stream(
        self, sources: Sequence[Source], row_maps: Mapping[str, RowMap | None]
    ) -> StreamedSide | None:
        """Return the input whose splits are the tasks."""
        from mrflight.planner.cogroup_plan import StreamedSide

        kind = FragmentReader if self.reads_files else StreamReader
        for source in sources:
            if source.name == self.streamed:
                return StreamedSide(source, row_maps[source.name], kind)
        return None
