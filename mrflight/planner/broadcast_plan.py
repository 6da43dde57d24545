"""Which input of a stage the others are broadcast to: a pure function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa

from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError
from mrflight.sources.base import Source
from mrflight.tasks.joined_tables import JoinCoGroup
from mrflight.tasks.mapper import RowMap, mapped_schema
from mrflight.tasks.operators.hash_join import can_broadcast
from mrflight.tasks.queried_tables import SqlCoGroup
from mrflight.tasks.stage_rows import CoGroup

AUTO_BROADCAST_BYTES = 8 * 2**20
"""Of rows in memory, at most, that are broadcast without being asked for: every task fetches them
and makes a table of their keys, in some hundredths of a second."""

_LEAST_TIMES = 8
"""That the other input is as large: or shuffling both is little work as well."""


class Stream(msgspec.Struct, frozen=True):
    """An input whose rows meet the others' where they are read."""

    source: Source
    row_map: RowMap | None

    @property
    def schema(self) -> pa.Schema | None:
        """Of its mapped rows; None where a function will say it."""
        return mapped_schema(self.source.reader.schema, self.row_map)


def plan_stream(
    spec: JobSpec,
    cogroup: CoGroup | None,
    sources: Sequence[Source],
    maps: Mapping[str, RowMap | None],
) -> Stream | None:
    """The input that others are broadcast to; None where all are shuffled.

    JobFileError where none is left.
    """
    asked = [source for source in sources if spec.inputs[source.name].broadcast]
    small = asked or _small(spec, cogroup, sources)
    if not small:
        return None
    others = [source for source in sources if source not in small]
    if not others:
        raise JobFileError("inputs: all are broadcast; leave that out for the largest of them")
    if isinstance(cogroup, SqlCoGroup) and cogroup.query.stream is None:
        return None
    (source,) = others
    return Stream(source, maps[source.name])


def _small(spec: JobSpec, cogroup: CoGroup | None, sources: Sequence[Source]) -> list[Source]:
    """The input of a join that is so much smaller than the other that it is broadcast."""
    if not isinstance(cogroup, JoinCoGroup) or spec.shuffle.partitions != "auto":
        return []
    by_name = {source.name: source for source in sources}
    for name, other, is_left in (
        (cogroup.left, cogroup.right, True),
        (cogroup.right, cogroup.left, False),
    ):
        small, large = by_name[name], by_name[other]
        if (
            spec.inputs[name].broadcast is None
            and can_broadcast(cogroup.join.how, is_left=is_left)
            and small.rows_bytes <= AUTO_BROADCAST_BYTES
            and small.rows_bytes * _LEAST_TIMES <= large.rows_bytes
        ):
            return [small]
    return []
