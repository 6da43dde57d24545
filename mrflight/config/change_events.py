"""What a job does with change events if its output does not say it: the defaults of their merge."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from mrflight.config.input_spec import InputSpec
from mrflight.config.spec import JobSpec
from mrflight.config.unstored_columns import UnstoredColumns
from mrflight.errors import JobFileError

OPERATION, DELETED, OFFSET = "_op", "_deleted", "_offset"
CHANGE_COLUMNS = (OPERATION, DELETED, OFFSET)
"""The columns that ``envelope = "debezium"`` adds: what was done, whether the row is deleted, and
the place of the change in its partition."""


def with_change_defaults(spec: JobSpec) -> JobSpec:
    """Return the job, whose merge orders change events by offset and deletes what they delete.

    Raises JobFileError for a job that would replace a table by changes.
    """
    changes = [(at, each) for at, each in _inputs(spec) if each.envelope == "debezium"]
    if not changes:
        return spec
    output, at = spec.output, changes[0][0]
    if output.mode == "overwrite":
        raise JobFileError(
            f"output.mode: 'overwrite' would replace the table by the changes of {at}; "
            "use merge with output.keys, or append for a log of all changes"
        )
    if output.mode != "merge":
        return spec
    if not output.keys:
        raise JobFileError(
            f"output.keys is missing: a merge of the changes of {at} needs the columns "
            'that are the primary key; write keys = ["..."] in [output]'
        )
    if not any(each.metadata for _, each in changes):
        output = replace(output, unstored=UnstoredColumns(CHANGE_COLUMNS))
    return replace(
        spec,
        output=replace(
            output,
            order_by=OFFSET if output.order_by is None else output.order_by,
            delete_when=DELETED if output.delete_when is None else output.delete_when,
        ),
    )


def _inputs(spec: JobSpec) -> Iterator[tuple[str, InputSpec]]:
    """Yield all inputs by the paths of their keys."""
    for name, section in spec.inputs.items():
        yield f"inputs.{name}", section
    for stage, each in spec.stages.items():
        for name, section in each.inputs.items():
            yield f"stages.{stage}.inputs.{name}", section
