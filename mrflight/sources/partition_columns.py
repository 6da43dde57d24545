"""Decides which columns the ``key=value`` folders of an input's files are, and their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress

import pyarrow as pa
from msgspec.structs import replace

from mrflight.errors import InputError
from mrflight.sources.found_input import FoundInput, InputFile
from mrflight.sources.hive_partitions import (
    PartitionColumns,
    PartitionTexts,
    infer_type,
    partition_of,
)
from mrflight.sources.listing import NeededPartitions
from mrflight.storage import Location


def named_by_all(roots: Sequence[Location]) -> frozenset[str]:
    """Return the folders that all paths of an input name: the user's choice, and no columns."""
    return frozenset.intersection(*(frozenset(root.path.split("/")) for root in roots))


def partition_of_file(path: str, named: frozenset[str]) -> PartitionTexts:
    """Return the values of the folders of a file, without those that all paths name."""
    if "=" not in path:
        return ()
    return partition_of(part for part in path.split("/")[:-1] if part not in named)


def find_partition_columns(
    name: str, root: Location, files: Sequence[InputFile], known: Mapping[str, pa.DataType]
) -> PartitionColumns | None:
    """Return the columns of the files' folders; InputError if the files do not have the same.

    ``root`` is a location in the files' store. ``known`` are types that need not be inferred.
    """
    columns = [key for key, _ in files[0].partition]
    advice = f"use a narrower path, or set inputs.{name}.hive = false to read no such columns"
    if len(set(columns)) < len(columns):
        raise InputError(
            f"inputs.{name}.path: {root.at(files[0].path).url} lies in two folders of one column, "
            f"{_listed(columns)}; {advice}"
        )
    for file in files:
        if (other := [key for key, _ in file.partition]) != columns:
            raise InputError(
                f"inputs.{name}.path: {root.at(files[0].path).url} lies in folders of "
                f"{_listed(columns)}, and {root.at(file.path).url} in folders of "
                f"{_listed(other)}, but all files must have the same columns; {advice}"
            )
    if not columns:
        return None
    distinct = {file.partition for file in files}
    inferred = {
        key: infer_type(texts[number][1] for texts in distinct)
        for number, key in enumerate(columns)
    }
    return PartitionColumns(name, {key: known.get(key, inferred[key]) for key in columns})


def without_unneeded(found: FoundInput, needed: NeededPartitions | None) -> FoundInput:
    """Leave out the files that are not needed, but not the first one, which has the schema."""
    if needed is None or found.partition_columns is None:
        return found
    are_needed = needed(found.partition_columns.parse([file.partition for file in found.files]))
    files = tuple(compress(found.files, are_needed)) or found.files[:1]
    skipped = {file.partition for file in found.files} - {file.partition for file in files}
    return replace(found, files=files, skipped_folders=len(skipped))


def _listed(columns: Sequence[str]) -> str:
    return " and ".join(columns) or "no column"
