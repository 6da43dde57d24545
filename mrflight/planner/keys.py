"""Keys and names of inputs, which several modules of the planner use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from mrflight.config.input_spec import InputSpec
from mrflight.config.spec import JobSpec

ONLY_SIDE: Mapping[int, bool] = MappingProxyType({0: False})
"""The sliceable sides of a stage with one side, whose slices have no outer remainder."""


def key_of(spec: JobSpec, section: InputSpec) -> list[str]:
    """Return the key columns of an input: its own, or those of the groups or of the merge."""
    if spec.reduce is not None and spec.reduce.is_total:
        return section.key
    return section.key or (spec.reduce.group_by if spec.reduce else []) or spec.output.keys


def rows_of(name: str, section: InputSpec) -> str:
    """Return how messages call the rows of an input: by the job-file key that may be wrong."""
    if section.steps:
        return f"what {section.steps[-1].call} gives"
    if section.sql is not None:
        return f"what inputs.{name}.sql gives"
    return f"inputs.{name}" if section.columns is None else f"what inputs.{name}.columns reads"
