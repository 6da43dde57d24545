"""Tests of what reading costs: the imported modules, and the memory for a large file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from deltalake import write_deltalake

READ = """
import resource, sys
from pathlib import Path
from mrflight.sources import open_source
from mrflight.config.input_spec import InputSpec

def read(path):
    source = open_source("visits", InputSpec(path=path), Path("/"), {}, 1 << 40)
    return sum(batch.num_rows for split in source.splits for batch in source.reader.read(split))

for path in sys.argv[1:]:
    rows = read(path)
    print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
print(*sorted(sys.modules))
"""


def run(*paths: Path) -> list[str]:
    command = [sys.executable, "-c", READ, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def write(table: pa.Table, path: Path) -> None:
    if path.suffix == ".csv":
        pa.csv.write_csv(table, path)
    elif path.suffix == ".parquet":
        pa.parquet.write_table(table, path, row_group_size=table.num_rows)
    elif path.suffix == ".json":
        lines = (
            f'{{"n":{n},"s":"{s}"}}\n' for n, s in zip(*table.to_pydict().values(), strict=True)
        )
        path.write_text("".join(lines))
    elif path.suffix == ".arrow":
        with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table)
    else:
        write_deltalake(str(path), table)


def rows(count: int) -> pa.Table:
    words = pa.array([f"row-{i}-{i * i}" for i in range(count)])
    return pa.table({"n": range(count), "s": words})


@pytest.mark.slow_but(".csv")
@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet", ".arrow", ""])
def test_only_the_modules_of_a_format_are_imported(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    write(rows(10), path)
    loaded = run(path)[-1].split()
    needs = {
        ".csv": {"pyarrow._csv"},
        ".json": {"pyarrow._json"},
        ".parquet": {"pyarrow._parquet"},
        ".arrow": set[str](),
        "": {"pyarrow._parquet", "deltalake"},
    }
    for module in set().union(*needs.values()):
        assert (module in loaded) == (module in needs[suffix]), module
    assert not {"pyarrow.dataset", "pyarrow.acero"} & set(loaded)  # they take 0.4 s


@pytest.mark.parametrize(
    "suffix",
    [".parquet", *(pytest.param(text, marks=pytest.mark.slow) for text in (".csv", ".json"))],
)
def test_a_large_file_needs_no_more_memory_than_a_small_one(tmp_path: Path, suffix: str) -> None:
    table = rows(600_000)
    small, large = tmp_path / f"small{suffix}", tmp_path / f"large{suffix}"
    write(table.slice(0, 200_000), small)
    write(pa.concat_tables([table] * 3).combine_chunks(), large)
    (_, before), (count, after) = (map(int, line.split()) for line in run(small, large)[:2])
    assert count == 1_800_000
    assert after - before < 16  # MiB; the files are 35 to 65 MiB larger
