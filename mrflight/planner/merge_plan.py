"""What a merge asks of a job's sections: a pure function of its spec."""

from __future__ import annotations

from collections.abc import Mapping

from mrflight.config.spec import JobSpec, OutputSection
from mrflight.errors import JobFileError
from mrflight.tasks.operators.merge_dedup import MergeDedup


def plan_merge(
    spec: JobSpec, by_input: Mapping[str, list[str]], partitions: int
) -> MergeDedup | None:
    """How the result's rows become one of each key; None where the output is not merged.

    ``by_input`` has the columns that each input is partitioned by. Raises JobFileError where the
    sections do not go together.
    """
    output = spec.output
    if output.mode != "merge":
        _check_unused(output)
        return None
    _check_section(output)
    key = _shuffle_key(spec, by_input)
    function = spec.reduce.function if spec.reduce else None
    if function and spec.shuffle.partitioner == "range":
        raise JobFileError(
            "shuffle.partitioner: range does not tell whether a reduce function's rows are still "
            "those of their partition, as a merge needs it; take hash"
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
                f"output.{name}: is for mode = 'merge', and the mode is {output.mode!r}; leave it "
                "out, or set that"
            )


def _check_section(output: OutputSection) -> None:
    keys = output.keys
    if output.format != "delta":
        raise JobFileError(
            f"output.mode: a folder of {output.format} files cannot be merged into; take format = "
            "'delta', or another mode"
        )
    if not keys:
        raise JobFileError(
            "output.keys: a merge needs the columns that say which row of the table a row of the "
            'result is; write keys = ["..."]'
        )
    if len(set(keys)) < len(keys):
        raise JobFileError(f"output.keys: {keys} names a column twice")
    if output.order_by in keys:
        raise JobFileError(
            f"output.order_by: {output.order_by!r} is one of output.keys, by which rows of one key "
            "do not differ; take another column"
        )
    if output.delete_when is not None and not output.delete_when.strip():
        raise JobFileError("output.delete_when: is empty; write a predicate, or leave it out")


def _shuffle_key(spec: JobSpec, by_input: Mapping[str, list[str]]) -> tuple[str, ...]:
    """The columns that all inputs are partitioned by. Rows with equal ``keys`` have to meet."""
    kind, keys = spec.shuffle.partitioner, spec.output.keys
    if kind not in ("hash", "range"):
        raise JobFileError(
            f"shuffle.partitioner: {kind} may bring rows with equal output.keys to different "
            "partitions, and a merge takes one of each; take hash"
        )
    for name, key in by_input.items():
        if not set(key) <= set(keys):
            raise JobFileError(
                f"inputs.{name}.key: {key} must be among output.keys, {keys}, or rows with equal "
                "ones land in several partitions"
            )
    first = next(iter(by_input))
    for name, key in by_input.items():
        if key != by_input[first]:
            raise JobFileError(
                f"inputs.{name}.key: {key} is not that of inputs.{first}, {by_input[first]}, so "
                "that rows with equal output.keys land in several partitions; take the same columns"
            )
    return tuple(by_input[first])
