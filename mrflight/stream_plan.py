"""Which input of a stage the others are broadcast to: a pure function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from mrflight.errors import JobFileError
from mrflight.functions import FunctionRef
from mrflight.meeting_plan import can_broadcast
from mrflight.side_plan import map_function
from mrflight.sources.base import Source
from mrflight.spec import JobSpec
from mrflight.workers.joined_tables import JoinedTables
from mrflight.workers.stage_rows import Meeting

AUTO_BROADCAST_BYTES = 8 * 2**20
"""Of rows in memory, at most, that are broadcast without being asked for: every task fetches them
and makes a table of their keys, in some hundredths of a second."""

_LEAST_TIMES = 8
"""That the other input is as large: or shuffling both is little work as well."""


@dataclass(frozen=True)
class Stream:
    """An input whose rows meet the others' where they are read."""

    source: Source
    function: FunctionRef | None

    @property
    def schema(self) -> pa.Schema | None:
        """Of its mapped rows; None where a function will say it."""
        return None if self.function else self.source.reader.schema


def plan_stream(
    spec: JobSpec, meeting: Meeting | None, sources: Sequence[Source], folder: str
) -> Stream | None:
    """The input that others are broadcast to; None where all are shuffled.

    JobFileError where others than one are left.
    """
    asked = [source for source in sources if spec.inputs[source.name].broadcast]
    small = asked or _small(spec, meeting, sources)
    if not small:
        return None
    others = [source for source in sources if source not in small]
    if len(others) != 1:
        names = ", ".join(source.name for source in others) or "none"
        raise JobFileError(
            "inputs: where an input is broadcast, all but one are, and that one's rows stay where "
            f"they are read; not broadcast: {names}"
        )
    (source,) = others
    return Stream(source, map_function(source.name, spec.inputs[source.name], folder))


def _small(spec: JobSpec, meeting: Meeting | None, sources: Sequence[Source]) -> list[Source]:
    """The input of a join that is so much smaller than the other that it is broadcast."""
    if not isinstance(meeting, JoinedTables) or spec.shuffle.partitions != "auto":
        return []
    by_name = {source.name: source for source in sources}
    for name, other, is_left in (
        (meeting.left, meeting.right, True),
        (meeting.right, meeting.left, False),
    ):
        small, large = by_name[name], by_name[other]
        if (
            spec.inputs[name].broadcast is None
            and can_broadcast(meeting.join.how, is_left=is_left)
            and small.rows_bytes <= AUTO_BROADCAST_BYTES
            and small.rows_bytes * _LEAST_TIMES <= large.rows_bytes
        ):
            return [small]
    return []
