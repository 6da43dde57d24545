"""Make the inputs of the cases, once, and keep them.

An existing folder is complete: it gets its name when all its files are written.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from experiments import datasets
from experiments.comparison.cases import Case

FILES = 10
ZIPF_KEYS = 1_000_000
ZIPF_EXPONENT = 1.2
"""With this exponent the first of a million keys gets 19 % of the rows, and the first ten 46 %."""

_ARROW_BYTES = ".arrow_bytes"


def folder_of(case: Case, data: Path, python: Path) -> Path:
    """Return the folder with the input of ``case``, and make it if it does not exist.

    tpchgen-cli may be installed next to the interpreter ``python``.
    """
    if case.job == "clicks":
        files = datasets.generate(datasets.DataSet(case.keys, int(case.size), FILES), data)
        return files[0].parent
    if case.job == "zipf":
        name = f"zipf-{case.size:g}-rows"
        return _made_once(data / name, lambda folder: _write_zipf(int(case.size), folder))
    return tpch("lineitem", case.size, data, python)


def tpch(table: str, scale: float, data: Path, python: Path) -> Path:
    """Return the folder of a TPC-H table: lineitem in ten files, the others in one."""
    name = f"{table}-sf{scale:g}"
    return _made_once(data / name, lambda folder: _write_tpch(table, scale, folder, python))


def files_of(folder: Path) -> list[Path]:
    """Return the files of an input."""
    return sorted(path for path in folder.iterdir() if path.suffix in (".csv", ".parquet"))


def arrow_bytes(folder: Path) -> int:
    """Return the size of the input in memory, as Arrow."""
    known = folder / _ARROW_BYTES
    if not known.exists():
        total = 0
        for path in files_of(folder):
            if path.suffix == ".csv":
                total += sum(batch.nbytes for batch in pacsv.open_csv(path))
            else:
                total += sum(batch.nbytes for batch in ds.dataset(path).to_batches())
        known.write_text(str(total))
    return int(known.read_text())


def _made_once(folder: Path, write: Callable[[Path], None]) -> Path:
    if not folder.exists():
        unfinished = folder.with_name(f".{folder.name}.tmp")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        write(unfinished)
        unfinished.rename(folder)
    return folder


def _write_zipf(rows: int, folder: Path) -> None:
    """Write ``key`` and ``value``, both int64; the k-th key has k ** -1.2 of the rows."""
    random = np.random.default_rng(20261121)
    keys = min(ZIPF_KEYS, rows)
    shares = np.cumsum(np.arange(1, keys + 1, dtype=float) ** -ZIPF_EXPONENT)
    numbers = random.permutation(keys).astype(np.int64)
    for file in range(FILES):
        count = rows * (file + 1) // FILES - rows * file // FILES
        ranks = np.searchsorted(shares, random.random(count) * shares[-1])
        columns = {"key": numbers[ranks], "value": random.integers(0, 1000, count)}
        pq.write_table(pa.table(columns), folder / f"visits-{file:04}.parquet")


def _write_tpch(table: str, scale: float, folder: Path, python: Path) -> None:
    """Write a TPC-H table by tpchgen-cli, with plain strings.

    The generator writes string views, which not every reader supports. Its row groups are kept.
    """
    made = folder / "made"
    command = [_generator(python), "parquet", f"--scale-factor={scale:g}", f"--tables={table}"]
    parts = [f"--parts={FILES}"] if table == "lineitem" else []
    subprocess.run(
        [*command, *parts, f"--output-dir={made}", "--quiet"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    for path in sorted(made.rglob("*.parquet")):
        with_plain_strings(path, folder / path.name)
    shutil.rmtree(made)


def _generator(python: Path) -> str:
    places = (str(python.parent), str(Path(sys.executable).parent), None)
    found = (shutil.which("tpchgen-cli", path=place) for place in places)
    if program := next(filter(None, found), None):
        return program
    raise FileNotFoundError("tpchgen-cli makes the data of TPC-H: pip install tpchgen-cli")


def with_plain_strings(source: Path, target: Path) -> None:
    """Copy a Parquet file by row groups; decimals that are stored as integers stay integers."""
    with pq.ParquetFile(source) as file:
        plain = pa.schema(
            field.with_type(pa.string()) if field.type == pa.string_view() else field
            for field in file.schema_arrow
        )
        with pq.ParquetWriter(target, plain, store_decimal_as_integer=True) as out:
            for group in range(file.num_row_groups):
                out.write_table(file.read_row_group(group).cast(plain))
