"""Tables in files, in the layouts that people have, as the inputs of jobs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import mrflight

SETTINGS = {"cluster.workers": 2, "cluster.memory": "1 GiB"}

BAD = ["x,x", "1,2,3,x,5", '"', "1,a,99999999999999999999,1"]
"""Lines that are no rows of these types."""


def in_files(folder: Path, name: str, table: pa.Table, files: int) -> mrflight.Dataset:
    """The rows, written into so many files, some of which may be empty."""
    (folder / name).mkdir()
    rows = -(-len(table) // files)
    for number in range(files):
        pq.write_table(table.slice(number * rows, rows), folder / name / f"{number}.parquet")
    return mrflight.read(folder / name, name=name).with_settings(SETTINGS)


def as_csv(folder: Path, name: str, table: pa.Table, files: int) -> mrflight.Dataset:
    """The rows among bad ones, one for each good one of a file and one more."""
    (folder / name).mkdir()
    rows = -(-len(table) // files)
    for number in range(files):
        lines = [",".join(table.column_names)]
        for row in table.slice(number * rows, rows).to_pylist():
            lines.append(BAD[len(lines) // 2 % len(BAD)])
            lines.append(",".join(r"\N" if v is None else f'"{v}"' for v in row.values()))
        (folder / name / f"{number}.csv").write_text("\n".join([*lines, BAD[number], ""]))
    types = {field.name: str(field.type) for field in table.schema}
    csv = {"null_values": [r"\N"]}
    return mrflight.read(
        folder / name, name=name, format="csv", csv=csv, types=types, bad_rows="skip"
    ).with_settings(SETTINGS)


def in_hive_folders(folder: Path, name: str, table: pa.Table) -> mrflight.Dataset:
    """The rows in folders of the values of their first column, which is read as the last one."""
    key, *others = table.column_names
    for value in table[key].unique():
        shown = value.as_py()
        text = "__HIVE_DEFAULT_PARTITION__" if shown is None else shown
        below = folder / name / f"{key}={text}"
        below.mkdir(parents=True)
        is_of_value = pc.is_null(table[key]) if shown is None else pc.equal(table[key], shown)
        pq.write_table(table.filter(is_of_value).select(others), below / "0.parquet")
    return mrflight.read(
        folder / name, name=name, types={key: str(table.schema.field(key).type)}
    ).with_settings(SETTINGS)


def stored(
    folder: Path, name: str, table: pa.Table, files: int, layout: str
) -> tuple[mrflight.Dataset, pa.Table]:
    """The rows in a layout, and their table with its columns in the order in which they are read.

    A folder needs rows to be there.
    """
    if layout == "bad csv":
        return as_csv(folder, name, table, files), table
    if layout == "hive" and len(table):
        names = [*table.column_names[1:], table.column_names[0]]
        return in_hive_folders(folder, name, table), table.select(names)
    return in_files(folder, name, table, files), table
