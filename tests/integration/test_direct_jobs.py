"""A job of one map and one partition runs in one task, without servers, and gives the same rows."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from mrflight import read_table
from tests.support.commands.driver import drive, sorted_rows, write_job
from tests.support.commands.leftovers import nothing_left_over

pytestmark = pytest.mark.runs_on_ray

ROWS = 2000

JOB = """
[job]
name = "direct"
speculation = false
[inputs.rows]
path = "rows.csv"
key = ["k"]
INPUT
[reduce]
REDUCE
[output]
table = "OUT"
format = "parquet"
"""

FUNCTIONS = """
import os, signal
from pathlib import Path
import psutil
import pyarrow as pa
import pyarrow.compute as pc

BEGUN = Path(__file__).parent / "begun"

def encoded(batch):
    names = pa.array([f"n{ord(k) % 3}" for k in batch["k"].to_pylist()]).dictionary_encode()
    return batch.append_column("name", names).append_column(
        "wide", pc.cast(batch["s"], pa.large_string()))

def nothing(batch):
    return batch.slice(0, 0)

def by_key(table):
    return table.group_by("k").aggregate([("v", "sum")])

def processes(batch):
    running = psutil.Process(os.getppid()).children()
    return pa.record_batch({"k": [process.name() for process in running]})

def dies_once(table):
    if table.num_rows > 0 and not BEGUN.exists():
        BEGUN.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return table

def fails(batch):
    raise RuntimeError("the disk is on fire")
"""

GROUPS = 'group_by = ["k"]\naggregate = {'

SAME = {
    "copied": ("", ""),
    "mapped": ('map = "functions:encoded"', ""),
    "nothing": ('map = "functions:nothing"', ""),
    "nothing of groups": ('map = "functions:nothing"', GROUPS + ' n = "count(*)" }'),
    "sums": ("", GROUPS + ' n = "count(v)", s = "sum(v)", m = "mean(v)", x = "max(s)" }'),
    "statistics": ("", GROUPS + ' d = "stddev(v)", m = "median(v)", n = "count(distinct s)" }'),
    "encoded groups": (
        'map = "functions:encoded"',
        'group_by = ["k", "name"]\naggregate = { n = "count(wide)" }',
    ),
    "one row": ("key = []", 'aggregate = { n = "count(*)", s = "sum(v)" }'),
    "one row of nothing": (
        'key = []\nmap = "functions:nothing"',
        'aggregate = { n = "count(*)", s = "sum(v)" }',
    ),
    "distinct": ("columns = ['k', 's']", "distinct = true"),
    "kept": ("", 'keep = "last"\norder_by = ["v", "s"]'),
    "function": ("", 'function = "functions:by_key"'),
    "sorted": ("key = []", 'sort_by = ["v desc", "s", "k"]'),
    "first rows": ("key = []", 'sort_by = ["v desc", "s", "k"]\nlimit = 10'),
    "bad rows": ('types = { v = "int64" }\nbad_rows = "skip"', GROUPS + ' s = "sum(v)" }'),
    "sql": ("sql = 'select k, v * 2 as v from rows where v > 3'", GROUPS + ' s = "sum(v)" }'),
}
FAST = {"mapped", "nothing of groups", "sums", "sorted", "bad rows"}


def write_rows(folder: Path, seed: int = 7) -> None:
    """Rows with few keys, some nulls, and, for ``types``, values of ``v`` that are no numbers."""
    random = Random(seed)
    values = ["", "1.5", "2", "-3", "7"]
    lines = [
        f"{random.choice('abcdefgh')},{random.choice(values)},{random.random()}"
        for _ in range(ROWS)
    ]
    (folder / "rows.csv").write_text("k,v,s\n" + "\n".join(lines) + "\n")
    (folder / "functions.py").write_text(FUNCTIONS)


def job_file(folder: Path, given: str, reduce: str, out: str = "out") -> Path:
    key = "" if "key = []" in given else 'key = ["k"]\n'
    text = JOB.replace('key = ["k"]\n', key).replace("INPUT", given.replace("key = []", ""))
    text = text.replace("[reduce]\nREDUCE", f"[reduce]\n{reduce}" if reduce else "")
    return write_job(folder, text.replace("OUT", out), f"{out}.toml")


def result_of(folder: Path, out: str) -> pa.Table:
    return read_table(str(folder / out))


@pytest.mark.slow_but("sorted")
@pytest.mark.parametrize(
    "kind", [kind if kind in FAST else pytest.param(kind, marks=pytest.mark.slow) for kind in SAME]
)
def test_the_rows_are_those_of_a_shuffle(kind: str, tmp_path: Path) -> None:
    write_rows(tmp_path)
    direct = drive(job_file(tmp_path, *SAME[kind]))
    assert direct.code == 0, direct.stderr
    assert direct.result["bytes_shuffled"] == 0
    assert direct.result["attempts"] == {"map": 1, "reduce": 0, "failed": 0}
    (tmp_path / "rows.csv").rename(tmp_path / "all.csv")
    header, *lines = (tmp_path / "all.csv").read_text().splitlines()
    (tmp_path / "rows").mkdir()
    for number in range(2):
        half = lines[number * ROWS // 2 : (number + 1) * ROWS // 2]
        (tmp_path / "rows" / f"{number}.csv").write_text("\n".join([header, *half]) + "\n")
    text = job_file(tmp_path, *SAME[kind], out="shuffled").read_text().replace("rows.csv", "rows")
    shuffled = drive(write_job(tmp_path, text, "shuffled.toml"), "--set=shuffle.partitions=1")
    assert shuffled.code == 0, shuffled.stderr
    assert shuffled.result["attempts"]["map"] == 2
    one, other = result_of(tmp_path, "out"), result_of(tmp_path, "shuffled")
    assert one.schema == other.schema
    if "sort_by" in SAME[kind][1]:
        assert one.to_pylist() == other.to_pylist()
    else:
        assert rounded(sorted_rows(one)) == rounded(sorted_rows(other))
    for count in ("rows_in", "rows_out", "bad_rows"):
        assert direct.result[count] == shuffled.result[count], count


def rounded(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sums of floats in another order differ in their last digits."""
    return [
        {
            name: round(value, 9) if isinstance(value, float) else value
            for name, value in row.items()
        }
        for row in rows
    ]


@pytest.mark.runs_on_ray(False, "Ray's processes are not forked")
def test_it_needs_one_worker_and_no_server(tmp_path: Path) -> None:
    write_rows(tmp_path)
    done = drive(
        job_file(tmp_path, 'map = "functions:processes"', ""), "--set", "cluster.workers=4"
    )
    assert done.code == 0, done.stderr
    # The system shows fifteen characters of a name.
    assert result_of(tmp_path, "out")["k"].to_pylist() == ["mrflight-worker"]


@pytest.mark.runs_on_ray(False, "Ray's processes are not forked")
def test_a_worker_that_is_killed_is_replaced(tmp_path: Path) -> None:
    write_rows(tmp_path)
    job = job_file(tmp_path, "", 'function = "functions:dies_once"')
    with nothing_left_over(tmp_path / "temporary") as environment:
        done = drive(job, environment=environment)
    assert done.code == 0, done.stderr
    assert done.result["attempts"] == {"map": 2, "reduce": 0, "failed": 1}
    assert done.stderr.count("it was killed from outside") == 1
    (part,) = (tmp_path / "out").glob("*.parquet")
    assert pq.read_metadata(part).num_rows == done.result["rows_out"] == ROWS


def test_an_error_names_the_file_and_leaves_nothing(tmp_path: Path) -> None:
    write_rows(tmp_path)
    done = drive(job_file(tmp_path, 'map = "functions:fails"', ""))
    assert done.code == 2
    assert "the disk is on fire" in done.message
    assert "in map 0 (rows, " in done.message
    assert not (tmp_path / "out").exists()


def test_a_merge_finds_its_rows(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("k,v\na,1\nb,2\n")
    text = """
    [job]
    name = "merge"
    [inputs.rows]
    path = "rows.csv"
    [output]
    table = "out"
    mode = "merge"
    keys = ["k"]
    """
    for rows in ("a,1\nb,2\n", "b,3\nc,4\n"):
        (tmp_path / "rows.csv").write_text(f"k,v\n{rows}")
        done = drive(write_job(tmp_path, text))
        assert done.code == 0, done.stderr
        assert done.result["bytes_shuffled"] == 0
    table = DeltaTable(str(tmp_path / "out")).to_pyarrow_table()
    assert sorted(table.to_pylist(), key=lambda row: row["k"]) == [
        {"k": "a", "v": 1},
        {"k": "b", "v": 3},
        {"k": "c", "v": 4},
    ]
