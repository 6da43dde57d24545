"""A job in little memory comes to what it does in much, and leaves nothing where it spilled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from mrflight.config.memory import Processes, min_memory
from tests.support.commands.driver import drive, sorted_rows, write_job
from tests.support.commands.leftovers import nothing_left_over, tree

pytestmark = pytest.mark.runs_on_ray

ROWS = 200_000

JOB = """
[job]
name = "memory"
[inputs.rows]
path = "rows.parquet"
key = ["key"]
[shuffle]
partitions = 3
PARTITIONER
REDUCE
[output]
table = "out"
[cluster]
workers = 2
"""

REDUCES = {
    "sums": """
[reduce]
group_by = ["key"]
aggregate = { total = "sum(value)", rows = "count(*)" }
""",
    "distinct": """
[reduce]
group_by = ["key"]
aggregate = { values = "count_distinct(value)" }
""",
    "rows": "",
    "sorted": "",
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of keys that mostly come once, one that comes often, and numbers."""
    random = np.random.default_rng(5)
    numbers = random.integers(0, ROWS, ROWS)
    numbers[: ROWS // 4] = 7
    table = pa.table(
        {"key": [f"key {n:09d}" for n in numbers], "value": random.integers(0, 99, ROWS)}
    )
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(table, path, row_group_size=ROWS // 4)
    return path


@pytest.mark.slow
@pytest.mark.runs_on_ray(False, "is about the memory of local processes; those of Ray weigh more")
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.slow if kind in ("rows", "distinct") else ())
        for kind in REDUCES
    ],
)
def test_little_memory_changes_nothing_but_the_time(tmp_path: Path, rows: Path, kind: str) -> None:
    partitioner = 'partitioner = "range"' if kind == "sorted" else ""
    text = JOB.replace("REDUCE", REDUCES[kind]).replace("PARTITIONER", partitioner)
    job = write_job(tmp_path, text)
    given = ("--set", f"inputs.rows.path={rows}")
    spill = tmp_path / "spill"
    spill.mkdir()
    much = drive(job, *given, "--set", "output.table=much")
    assert much.code == 0, much.stderr
    little = (
        *("--set", "output.table=little", "--set", "shuffle.memory=256 KiB"),
        *("--set", "cluster.memory=400 MiB", "--set", "cluster.spill_dir=spill"),
    )
    with nothing_left_over(tmp_path / "tmp") as environment:
        done = drive(job, *given, *little, environment=environment)
    assert done.code == 0, done.stderr
    assert tree(spill) == {}
    assert done.result["rows_out"] == much.result["rows_out"] > 0
    results = [DeltaTable(tmp_path / name).to_pyarrow_table() for name in ("much", "little")]
    assert sorted_rows(results[0]) == sorted_rows(results[1])
    assert 50 * 2**20 < done.result["peak_memory_bytes"] < 600 * 2**20


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("cluster.memory=64 MiB", "cluster.memory: 64.0 MiB is too little for 2 workers"),
        ("cluster.memory=lots", "cluster.memory: 'lots' is not a size"),
        ("shuffle.memory=lots", "shuffle.memory: 'lots' is not a size"),
        ("cluster.spill_dir=nowhere", "cluster.spill_dir: "),
        ("cluster.spill_dir=/proc", "cluster.spill_dir: "),
        ("cluster.spill_dir=", "cluster.spill_dir must not be empty"),
    ],
)
def test_memory_that_cannot_be_had_is_refused(
    tmp_path: Path, rows: Path, setting: str, expected: str
) -> None:
    job = write_job(tmp_path, JOB.replace("REDUCE", "").replace("PARTITIONER", ""))
    with nothing_left_over(tmp_path / "tmp") as environment:
        done = drive(
            job, "--set", f"inputs.rows.path={rows}", "--set", setting, environment=environment
        )
    assert done.code == 2
    assert expected in done.message
    assert tree(tmp_path / "out") == {}


@pytest.mark.slow
@pytest.mark.runs_on_ray(False, "is about the memory of local processes; those of Ray weigh more")
def test_a_window_in_sql_runs_in_the_least_memory_that_is_accepted(tmp_path: Path) -> None:
    rows = 20_000
    numbers = np.random.default_rng(3).permutation(rows)
    table = pa.table({"k": numbers % 1000, "v": numbers, "t": [f"{n:09d}" * 600 for n in numbers]})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=1000)
    window = "row_number() over (partition by k order by v)"
    text = JOB.replace('"key"', '"k"').replace("partitions = 3\nPARTITIONER", "partitions = 1")
    reduce = f'[reduce]\nsql = "select *, {window} as n from rows"'
    job = write_job(tmp_path, text.replace("REDUCE", reduce))
    least = min_memory(Processes(workers=2, data_servers=1, with_sql=True))
    given = ("--set", f"cluster.memory={least} B", "--set", "cluster.data_servers=1")
    refused = drive(job, *given, "--set", f"cluster.memory={least - 1} B")
    assert (refused.code, "cluster.memory" in refused.stderr) == (2, True), refused.stderr
    done = drive(job, *given)
    assert done.code == 0, done.stderr
    found = DeltaTable(tmp_path / "out").to_pyarrow_table(columns=["v", "n"])
    assert sorted(found["v"].to_pylist()) == list(range(rows))
    assert found["n"].to_pylist() == [v // 1000 + 1 for v in found["v"].to_pylist()]
