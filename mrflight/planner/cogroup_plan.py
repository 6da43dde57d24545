"""How the tables of a stage become one before they are reduced: a pure function of its spec."""

from __future__ import annotations

from mrflight.config.spec import JobSpec, ReduceSection
from mrflight.errors import JobFileError
from mrflight.planner.keys import rows_of
from mrflight.tasks.joined_tables import JoinCoGroup
from mrflight.tasks.operators.hash_join import How, Join, can_broadcast
from mrflight.tasks.operators.sql_reduce import SqlReduce
from mrflight.tasks.queried_tables import SqlCoGroup
from mrflight.tasks.stage_rows import CoGroup


def plan_cogroup(spec: JobSpec) -> CoGroup | None:
    """A join, or sql of whole keys; None where the rows of all inputs are one table.

    Raises JobFileError where the sections do not go together.
    """
    reduce = spec.reduce
    if reduce is None:
        return None
    if reduce.sql is not None:
        _check_sql_keys(spec)
        return SqlCoGroup(
            SqlReduce(reduce.sql, "reduce.sql", _sql_stream(spec), _keys_in_partitions(spec))
        )
    if reduce.join is not None:
        return _plan_join(spec, reduce, reduce.join)
    for name, value in (("left", reduce.left), ("right", reduce.right)):
        if value is not None:
            raise JobFileError(f"reduce.{name}: is for a join; set reduce.join, or leave it out")
    for name, section in spec.inputs.items():
        if section.broadcast is not None:
            raise JobFileError(
                f"inputs.{name}.broadcast: is for a join or sql, whose other input its rows meet; "
                "leave it out"
            )
    return None


def _check_sql_keys(spec: JobSpec) -> None:
    """Raise JobFileError where rows of several inputs would not meet by their keys."""
    keys = {name: section.key for name, section in spec.inputs.items() if not section.broadcast}
    first = next((name for name, key in keys.items() if key), None)
    if first is None:
        return
    for name, key in keys.items():
        if not key:
            raise JobFileError(
                f"inputs.{name}.key: is missing, and inputs.{first} has one, by which their rows "
                "are to meet; give both the same number of columns, or set broadcast = true for a "
                "small input that everyone needs"
            )
        if len(key) != len(keys[first]):
            raise JobFileError(
                f"inputs.{name}.key: {key} is {len(key)} columns, and that of inputs.{first} is "
                f"{len(keys[first])}, so that no rows of the two would meet"
            )


def _sql_stream(spec: JobSpec) -> str | None:
    """The input whose rows go nowhere: the one without a key where all others are broadcast."""
    others = [name for name, section in spec.inputs.items() if not section.broadcast]
    if len(others) == len(spec.inputs) or any(spec.inputs[name].key for name in others):
        return None
    return others[0] if len(others) == 1 else None


def _keys_in_partitions(spec: JobSpec) -> dict[str, tuple[str, ...]]:
    """The keys by which inputs are in several partitions; none where there is surely one.

    With a user's partitioner nobody knows what is together.
    """
    if spec.shuffle.partitions == 1 or ":" in spec.shuffle.partitioner:
        return {}
    sections = spec.inputs.items()
    return {n: tuple(each.key) for n, each in sections if each.key and not each.broadcast}


def _plan_join(spec: JobSpec, reduce: ReduceSection, how: How) -> JoinCoGroup:
    names = list(spec.inputs)
    if len(names) == 1:
        raise JobFileError(
            f"reduce.join: joins two inputs, and there is only {names[0]}; a second [inputs.NAME] "
            "is missing"
        )
    if len(names) != 2:
        raise JobFileError(
            f"reduce.join: joins two inputs, and there are {len(names)} ({', '.join(names)}); join "
            "more in stages, [stages.NAME]"
        )
    if spec.shuffle.partitioner != "hash":
        raise JobFileError(
            f"shuffle.partitioner: {spec.shuffle.partitioner} does not bring equal keys of two "
            "inputs together, as a join needs them; take hash"
        )
    left = reduce.left or next(name for name in names if name != reduce.right)
    right = reduce.right or next(name for name in names if name != left)
    for key, name, other in (("left", left, right), ("right", right, left)):
        if name not in names:
            raise JobFileError(f"reduce.{key}: {name!r} is no input; there are {', '.join(names)}")
        if name == other:
            raise JobFileError(f"reduce.{key}: {name!r} is the other side as well; name both")
    keys = [tuple(spec.inputs[name].key) for name in (left, right)]
    for name, columns, others in zip((left, right), keys, reversed(keys), strict=True):
        if not columns:
            raise JobFileError(
                f"inputs.{name}.key: a join needs the columns that are equal in both inputs"
            )
        if len(columns) < len(others):
            raise JobFileError(
                f"inputs.{name}.key: {list(columns)} is {len(columns)} columns, and the other side "
                f"has {len(others)}; a join compares them one by one"
            )
    _check_broadcast(spec, left, right, how)
    called = [f"inputs.{name}.key: {rows_of(name, spec.inputs[name])}" for name in (left, right)]
    join = Join(how, keys[0], keys[1], rows=(called[0], called[1]))
    return JoinCoGroup(left, right, join)


def _check_broadcast(spec: JobSpec, left: str, right: str, how: How) -> None:
    """Raise JobFileError where rows that are with everyone would be in the result as often."""
    for name, is_left in ((left, True), (right, False)):
        if spec.inputs[name].broadcast and not can_broadcast(how, is_left=is_left):
            raise JobFileError(
                f"inputs.{name}.broadcast: nobody could tell which of its rows meet none, as a "
                f"{how} join asks for them, where everyone has them; leave it out"
            )
