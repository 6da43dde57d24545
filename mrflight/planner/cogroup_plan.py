"""Plans how the tables of a stage become one, and which are broadcast: pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa

from mrflight.config.reduce_section import ReduceSection
from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError
from mrflight.planner.keys import rows_of
from mrflight.sources.base import Source
from mrflight.tasks.broadcast_join import StreamReader
from mrflight.tasks.cogroup import CoGroup
from mrflight.tasks.cogroup_kinds import JoinCoGroup, SqlCoGroup
from mrflight.tasks.mapper import RowMap, mapped_schema
from mrflight.tasks.operators.hash_join import How, Join, can_broadcast
from mrflight.tasks.operators.sql_reduce import SqlReduce

AUTO_BROADCAST_BYTES = 8 * 2**20
"""The largest input, as rows in memory, that is broadcast without being asked for. Every task
fetches it and builds a table of its keys, in some hundredths of a second."""

_MIN_BROADCAST_RATIO = 8
"""The other input must be so many times larger. Otherwise shuffling both is little work as well."""


class StreamedSide(msgspec.Struct, frozen=True):
    """The input that is joined with broadcast inputs where it is read."""

    source: Source
    row_map: RowMap | None
    reader_kind: type[StreamReader] = StreamReader
    """What joins its rows with the broadcast inputs."""

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of its mapped rows; None if only a user's function determines it."""
        return mapped_schema(self.source.reader.schema, self.row_map)


def plan_cogroup(spec: JobSpec, reduce: ReduceSection) -> CoGroup:
    """Return the join or the sql of the stage, of which ``reduce`` sets one.

    Raises JobFileError if the sections contradict each other.
    """
    if reduce.sql is not None:
        _check_sql_keys(spec)
        return SqlCoGroup(
            SqlReduce(reduce.sql, "reduce.sql", _sql_stream(spec), _keys_in_partitions(spec))
        )
    assert reduce.join is not None, reduce
    return _plan_join(spec, reduce, reduce.join)


def _check_sql_keys(spec: JobSpec) -> None:
    """Raise JobFileError if the keys of several inputs cannot be compared."""
    keys = {name: section.key for name, section in spec.inputs.items() if not section.broadcast}
    first = next((name for name, key in keys.items() if key), None)
    if first is None:
        return
    for name, key in keys.items():
        if not key:
            raise JobFileError(
                f"inputs.{name}.key is missing, and inputs.{first} has one; give both the same "
                "number of columns, or set broadcast = true for a small input that every task needs"
            )
        if len(key) != len(keys[first]):
            raise JobFileError(
                f"inputs.{name}.key: {key} has {len(key)} columns, but the key of "
                f"inputs.{first} has {len(keys[first])}; give both the same number of columns"
            )


def _sql_stream(spec: JobSpec) -> str | None:
    """Return the streamed input: the only one without a key, if all others are broadcast."""
    others = [name for name, section in spec.inputs.items() if not section.broadcast]
    if len(others) == len(spec.inputs) or any(spec.inputs[name].key for name in others):
        return None
    return others[0] if len(others) == 1 else None


def _keys_in_partitions(spec: JobSpec) -> dict[str, tuple[str, ...]]:
    """Return the keys by which inputs are partitioned; none if there is only one partition.

    It is unknown which rows a user's partitioner brings together.
    """
    if spec.shuffle.partitions == 1 or ":" in spec.shuffle.partitioner:
        return {}
    sections = spec.inputs.items()
    return {n: tuple(each.key) for n, each in sections if each.key and not each.broadcast}


def _plan_join(spec: JobSpec, reduce: ReduceSection, how: How) -> JoinCoGroup:
    left, right = _name_sides(spec, reduce)
    keys = [tuple(spec.inputs[name].key) for name in (left, right)]
    for name, columns, others in zip((left, right), keys, reversed(keys), strict=True):
        if not columns:
            raise JobFileError(
                f"inputs.{name}.key: a join needs the columns that are equal in both inputs"
            )
        if len(columns) < len(others):
            raise JobFileError(
                f"inputs.{name}.key: {list(columns)} has {len(columns)} columns, and the other "
                f"side has {len(others)}; give both the same number of columns"
            )
    _check_broadcast(spec, left, right, how)
    called = [f"inputs.{name}.key: {rows_of(name, spec.inputs[name])}" for name in (left, right)]
    return JoinCoGroup(left, right, Join(how, keys[0], keys[1], rows=(called[0], called[1])))


def _name_sides(spec: JobSpec, reduce: ReduceSection) -> tuple[str, str]:
    """Return the names of the left and the right input of a join."""
    names = list(spec.inputs)
    if len(names) == 1:
        raise JobFileError(
            f"reduce.join needs two inputs, and there is only {names[0]}; add a second "
            "[inputs.NAME]"
        )
    if len(names) != 2:
        raise JobFileError(
            f"reduce.join needs two inputs, and there are {len(names)} ({', '.join(names)}); join "
            "more in stages, [stages.NAME]"
        )
    if spec.shuffle.partitioner != "hash":
        raise JobFileError(
            f"shuffle.partitioner: {spec.shuffle.partitioner} does not bring equal keys of two "
            "inputs together, as a join needs; use hash"
        )
    left = reduce.left or next(name for name in names if name != reduce.right)
    right = reduce.right or next(name for name in names if name != left)
    for key, name, other in (("left", left, right), ("right", right, left)):
        if name not in names:
            raise JobFileError(f"reduce.{key}: no input {name!r}; there are {', '.join(names)}")
        if name == other:
            raise JobFileError(f"reduce.{key}: {name!r} is the other side already; name both sides")
    return left, right


def _check_broadcast(spec: JobSpec, left: str, right: str, how: How) -> None:
    """Raise JobFileError if every task would return the unmatched rows of a broadcast input."""
    for name, is_left in ((left, True), (right, False)):
        if spec.inputs[name].broadcast and not can_broadcast(how, is_left=is_left):
            raise JobFileError(
                f"inputs.{name}.broadcast: a {how} join returns the rows of this input without a "
                "match, and no task sees all rows of the other; leave it out"
            )


def plan_broadcast(
    spec: JobSpec,
    cogroup: CoGroup,
    sources: Sequence[Source],
    row_maps: Mapping[str, RowMap | None],
) -> StreamedSide | None:
    """Return the input to which the others are broadcast; None if all are shuffled.

    Raises JobFileError if all inputs are to be broadcast.
    """
    requested = [source for source in sources if spec.inputs[source.name].broadcast]
    small = requested or _find_small(spec, cogroup, sources)
    if not small:
        return None
    others = [source for source in sources if source not in small]
    if not others:
        raise JobFileError("inputs: all have broadcast = true; leave it out for the largest")
    if isinstance(cogroup, SqlCoGroup) and cogroup.query.stream is None:
        return None
    (source,) = others
    return StreamedSide(source, row_maps[source.name])


def _find_small(spec: JobSpec, cogroup: CoGroup, sources: Sequence[Source]) -> list[Source]:
    """Return the input of a join that is so much smaller than the other that it is broadcast."""
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
            and small.rows_bytes * _MIN_BROADCAST_RATIO <= large.rows_bytes
        ):
            return [small]
    return []
