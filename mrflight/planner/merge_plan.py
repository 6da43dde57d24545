"""Checks the sections of a job that merges into a Delta table: a pure function of its spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mrflight.config.output_section import OutputSection
from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError

if TYPE_CHECKING:
    from mrflight.tasks.operators.merge_dedup import MergeDedup


def plan_merge(
    spec: JobSpec, by_input: Mapping[str, list[str]], partitions: int
) -> MergeDedup | None:
    """Return how the result gets one row per key; None if the output is not merged into a table.

    ``by_input`` has the key columns of each input. Raises JobFileError if the sections contradict
    each other.
    """
    output = spec.output
    if output.mode != "merge":
        _check_unused(output)
        return None
    from mrflight.tasks.operators.merge_dedup import MergeDedup

    _check_section(output)
    key = _shuffle_key(spec, by_input)
    function = spec.reduce.function if spec.reduce else None
    if function and spec.shuffle.partitioner == "range":
        raise JobFileError(
            "shuffle.partitioner: with range a merge cannot check that the rows of a reduce "
            "function belong to their partition; use hash"
        )
    checked = key if function else ()
    return MergeDedup(tuple(output.keys), output.order_by, checked, partitions)


def _check_unused(output: OutputSection) -> None:
    for name, value in (
        ("keys", output.keys),
        ("order_by", output.order_by),
        ("delete_when", output.delete_when),
    ):
        if value:
            raise JobFileError(
                f"output.{name} only applies to mode = 'merge', and the mode is {output.mode!r}; "
                "leave it out, or set that mode"
            )


def _check_section(output: OutputSection) -> None:
    keys = output.keys
    if output.format != "delta":
        raise JobFileError(
            f"output.mode: cannot merge into {_kind(output)}; set format = 'delta', or another mode"
        )
    if not keys:
        raise JobFileError(
            "output.keys: a merge needs the columns that identify a row of the table; set "
            'output.keys = ["..."]'
        )
    if len(set(keys)) < len(keys):
        raise JobFileError(f"output.keys: {keys} names a column twice")
    if output.order_by in keys:
        raise JobFileError(
            f"output.order_by: {output.order_by!r} is one of output.keys, which are equal in all "
            "rows of a key; use another column"
        )
    if output.delete_when is not None and not output.delete_when.strip():
        raise JobFileError(
            "output.delete_when must not be empty; write a predicate, or leave it out"
        )


def _kind(output: OutputSection) -> str:
    if output.in_catalog:
        return f"a table of format {output.format}"
    return f"a folder of {output.format} files"


def _shuffle_key(spec: JobSpec, by_input: Mapping[str, list[str]]) -> tuple[str, ...]:
    """Return the key columns of all inputs, which must bring rows with equal keys together."""
    kind, keys = spec.shuffle.partitioner, spec.output.keys
    if kind not in ("hash", "range"):
        raise JobFileError(
            f"shuffle.partitioner: {kind} may send rows with equal output.keys to different "
            "partitions, and a merge needs them together; use hash"
        )
    for name, key in by_input.items():
        if not set(key) <= set(keys):
            raise JobFileError(
                f"inputs.{name}.key: {key} must be among output.keys, {keys}; otherwise rows with "
                "equal keys go to several partitions"
            )
    first = next(iter(by_input))
    for name, key in by_input.items():
        if key != by_input[first]:
            raise JobFileError(
                f"inputs.{name}.key: {key} must be the key of inputs.{first}, {by_input[first]}; "
                "otherwise rows with equal output.keys go to several partitions"
            )
    return tuple(by_input[first])
