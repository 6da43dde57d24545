"""Plans what is made of each partition: a pure function of the job's sections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mrflight.config.aggregates import parse_aggregate
from mrflight.config.functions import FunctionRef
from mrflight.config.reduce_section import ReduceSection
from mrflight.config.sort_key import SortKey, ascending, parse_sort_keys
from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError
from mrflight.planner.keys import key_of
from mrflight.tasks.reducer import ReduceSpec

if TYPE_CHECKING:
    from mrflight.tasks.operators.first_last_by_key import FirstLastByKey


def plan_reduce_spec(spec: JobSpec, folder: str) -> ReduceSpec:
    """Return what is made of each partition, after its tables are joined."""
    section = spec.reduce
    if section is None:
        return ReduceSpec(sort_by=_ranges(spec))
    if section.orders:
        return _plan_order(section)
    _check_one_kind(section)
    if section.sql is not None or section.join is not None:
        return ReduceSpec()
    if section.function:
        function = FunctionRef.parse(section.function, "reduce.function", folder)
        return ReduceSpec(function=function, key=_common_key(spec))
    combines = spec.shuffle.partitioner in ("hash", "range")  # others may look at any column
    if section.distinct:
        return ReduceSpec(distinct=True, combines=combines, sort_by=_ranges(spec))
    if section.keep is not None:
        return ReduceSpec(kept=_plan_kept(spec, section), combines=combines, sort_by=_ranges(spec))
    return _plan_groups(spec, section, combines=combines)


def _check_one_kind(section: ReduceSection) -> None:
    """Raise JobFileError if [reduce] has more than one kind of reduce."""
    kinds = {
        "group_by" if section.group_by else "aggregate": section.groups,
        "function": section.function,
        "sql": section.sql,
        "join": section.join,
        "distinct": section.distinct,
        "keep": section.keep,
    }
    given = [name for name, value in kinds.items() if value]
    if len(given) > 1:
        first, second, *_ = given
        raise JobFileError(
            f"reduce.{second} cannot be combined with {first}; keep one, or make the other a stage "
            "of its own, [stages.NAME]"
        )
    if section.order_by and section.keep is None:
        raise JobFileError(
            "reduce.order_by only applies to reduce.keep; use reduce.sort_by to sort the result"
        )


def _plan_order(section: ReduceSection) -> ReduceSpec:
    """Return a reduce that sorts rows or cuts them at a limit."""
    if section.limit is not None and section.limit < 0:
        raise JobFileError(f"reduce.limit must be 0 or more, not {section.limit}")
    sort_by = parse_sort_keys(section.sort_by, "reduce.sort_by")
    return ReduceSpec(sort_by=sort_by, limit=section.limit)


def _plan_kept(spec: JobSpec, section: ReduceSection) -> FirstLastByKey:
    keys = {tuple(input_.key) for input_ in spec.inputs.values()}
    key = keys.pop()
    if keys or not key:
        name = next(iter(spec.inputs))
        raise JobFileError(
            f"inputs.{name}.key: keep needs key columns, the same for every input; it keeps one "
            "row of each key"
        )
    assert section.keep is not None, "there is nothing to keep"
    from mrflight.tasks.operators.first_last_by_key import FirstLastByKey

    return FirstLastByKey(key, section.keep, parse_sort_keys(section.order_by, "reduce.order_by"))


def _plan_groups(spec: JobSpec, section: ReduceSection, *, combines: bool) -> ReduceSpec:
    aggregates = tuple(parse_aggregate(name, text) for name, text in section.aggregate.items())
    if len(set(section.group_by)) < len(section.group_by):
        raise JobFileError(f"reduce.group_by: {section.group_by} names a column twice")
    if twice := {aggregate.name for aggregate in aggregates} & set(section.group_by):
        raise JobFileError(
            f"reduce.aggregate.{min(twice)} has the name of a group_by column, which is in the "
            "result anyway; give the aggregate another name"
        )
    group_by = tuple(section.group_by)
    return ReduceSpec(group_by, aggregates, sort_by=_ranges(spec), combines=combines)


def _common_key(spec: JobSpec) -> tuple[str, ...]:
    """Return the key columns by whose hash all inputs are partitioned; none if they differ."""
    keys = {tuple(key_of(spec, section)) for section in spec.inputs.values()}
    return keys.pop() if spec.shuffle.partitioner == "hash" and len(keys) == 1 else ()


def _ranges(spec: JobSpec) -> tuple[SortKey, ...]:
    """Return the sort keys of range partitions: the parts in order form one sorted table."""
    if spec.shuffle.partitioner != "range":
        return ()
    section = next(iter(spec.inputs.values()))
    return ascending(key_of(spec, section))
