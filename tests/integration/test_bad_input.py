"""Tests that mistakes of a user give one message and an exit code, and leave the output alone."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.support.commands.driver import drive, write_job
from tests.support.commands.leftovers import nothing_left_over, tree
from tests.support.jobs.clicks_job import JOB, WEIGH

pytestmark = pytest.mark.runs_on_ray

FUNCTIONS = (
    WEIGH
    + """
def raising(batch):
    raise ValueError("no such visitor: Ghost")

def nested(batch):
    return pa.record_batch(
        {"url": pa.array([[1]] * batch.num_rows), "weight": batch["visitor"], "ms": batch["ms"]}
    )

def not_a_batch(batch):
    return batch.to_pylist()

def words(batch):
    return pa.record_batch({"url": batch["url"], "weight": batch["visitor"], "ms": batch["ms"]})
"""
)


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job that has committed once."""
    folder = tmp_path_factory.mktemp("committed")
    (folder / "visits").mkdir()
    (folder / "visits" / "a.csv").write_text("url,visitor,ms\nx.com,User,3\ny.com,Robot,1\n")
    (folder / "visits" / "b.csv").write_text("url,visitor,ms\nx.com,Robot,4\nz.com,User,1\n")
    (folder / "clicks.py").write_text(FUNCTIONS)
    assert drive(write_job(folder, JOB)).code == 0
    return folder


@pytest.fixture
def job(committed: Path, tmp_path: Path) -> Path:
    """A copy of it, so that every failure has a table to leave alone."""
    shutil.copytree(committed, tmp_path / "job")
    return tmp_path / "job" / "job.toml"


def refused(job: Path, code: int, *options: str) -> str:
    """The message of a run that ends with ``code`` and leaves everything as it was."""
    folder = job.parent
    before = tree(folder / "out")
    with nothing_left_over(folder / "tmp") as environment:
        done = drive(job, *options, environment=environment)
    assert done.code == code, done.stderr
    assert done.result["state"] == "failed"
    assert done.result["error"] in done.stderr
    assert "/mrflight/" not in done.message  # no frames of ours
    assert tree(folder / "out") == before
    return done.message


def setting(key: str, value: str) -> tuple[str, str]:
    return "--set", f"{key}={value}"


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (setting("shuffle.partitons", "4"), ["shuffle.partitons", "did you mean 'partitions'"]),
        (setting("shufle.partitions", "4"), ["shufle", "did you mean 'shuffle'"]),
        (setting("inputs.visits.pth", "x"), ["inputs.visits.pth", "did you mean 'path'"]),
        (setting("shuffle.partitions", "0"), ["shuffle.partitions", "not 0"]),
        (setting("shuffle.partitions", "10_000_000"), ["shuffle.partitions", "not 10000000"]),
        (setting("shuffle.partitions", "many"), ["shuffle.partitions"]),
        (setting("output.mode", "upsert"), ["output.mode", "upsert"]),
        (setting("inputs.visits.path", "visit/*.csv"), ["inputs.visits.path", "visit/*.csv"]),
        (setting("inputs.visits.map", "clicks:weight"), ["inputs.visits.map", "'weight'"]),
        (setting("inputs.visits.map", "clics:weigh"), ["inputs.visits.map", "'clics'"]),
        (setting("inputs.visits.map", "weigh"), ["inputs.visits.map", "module:function"]),
        (setting("inputs.visits.key", "['link']"), ["inputs.visits.key", "reduce.group_by"]),
        (setting("reduce.group_by", "['link']"), ["inputs.visits.key"]),
        (setting("reduce.aggregate.clicks", "sum(wait)"), ["'wait'", "'weight'"]),
        (
            setting("reduce.aggregate.clicks", "mode(weight)"),
            ["mode(weight)", "count_distinct"],
        ),
        (setting("inputs.visits.columns", "['url', 'who']"), ["'who'", "'visitor'"]),
        (setting("job.timeout", "soon"), ["job.timeout", "soon"]),
        (
            setting("cluster.metadata", "127.0.0.1:5005"),
            ["cluster.metadata: '127.0.0.1:5005' is not", "grpc+tcp://"],
        ),
        (setting("output.mode", "error"), ["out/clicks", "mode"]),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else "",
)
def test_a_wrong_value_is_named(job: Path, options: tuple[str, str], parts: list[str]) -> None:
    message = refused(job, 2, *options)
    for part in parts:
        assert part in message
    assert len(message.splitlines()) <= 4


def test_a_job_file_that_is_not_there(tmp_path: Path) -> None:
    done = drive(tmp_path / "jobb.toml")
    assert done.code == 2
    assert "jobb.toml" in done.message


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    done = drive(write_job(tmp_path, "[job]\nname = 'x'\n[inputs.a]\npath = 'a.csv'\n"))
    assert done.code == 2
    expected = 'output is missing; write [output] with table = "..."'
    assert done.message.strip() == expected


def test_a_row_with_too_many_fields_is_named_by_file_and_line(job: Path) -> None:
    bad = job.parent / "visits" / "c.csv"
    bad.write_text("url,visitor,ms\n" + "x.com,User,3\n" * 300_000 + "x.com,User,3,extra\n")
    message = refused(job, 2)
    assert "c.csv" in message
    assert "300002" in message.replace(",", "")


def test_files_of_different_schemas_are_named(job: Path) -> None:
    (job.parent / "visits" / "c.csv").write_text("url,vistor,ms\nx.com,User,3\n")
    message = refused(job, 2)
    assert "c.csv" in message
    assert "no column 'visitor'" in message


def test_a_group_that_the_map_does_not_give_is_named_by_its_key(job: Path) -> None:
    key = "['visitr']"
    message = refused(job, 2, *setting("reduce.group_by", key), *setting("inputs.visits.key", key))
    expected = "reduce.group_by: a mapped row has no column 'visitr'; it has 'url', 'weight'"
    assert expected in message


def test_a_nested_key_is_refused(job: Path) -> None:
    message = refused(job, 2, *setting("inputs.visits.map", "clicks:nested"))
    assert "'url'" in message
    assert "list<" in message


def test_a_map_that_raises_shows_its_own_traceback_file_and_batch(job: Path) -> None:
    message = refused(job, 2, *setting("inputs.visits.map", "clicks:raising"))
    assert 'clicks.py", line' in message
    assert "ValueError: no such visitor: Ghost" in message
    assert re.search(r"[ab]\.csv from 0, batch 1", message)  # both maps raise
    assert "mapper.py" not in message


def test_a_map_that_returns_something_else(job: Path) -> None:
    message = refused(job, 2, *setting("inputs.visits.map", "clicks:not_a_batch"))
    assert "RecordBatch" in message
    assert "list" in message


def test_a_sum_of_words_is_refused(job: Path) -> None:
    message = refused(job, 2, *setting("inputs.visits.map", "clicks:words"))
    assert "reduce.aggregate.clicks" in message
    assert "string" in message


def test_append_of_another_schema_is_refused(job: Path) -> None:
    options = (*setting("output.mode", "append"), *setting("reduce.aggregate", "{hits='count(*)'}"))
    message = refused(job, 2, *options)
    assert "no column 'hits'" in message


def test_inputs_of_one_job_that_do_not_agree(job: Path) -> None:
    other = pa.table({"url": ["x.com"], "weight": [0.5], "ms": [3]})
    pyarrow.parquet.write_table(other, job.parent / "other.parquet")
    options = (
        *setting("inputs.other.path", "other.parquet"),
        *setting("inputs.other.key", "['url']"),
    )
    message = refused(job, 2, *options)
    assert "does not agree with the maps before it" in message
    assert "weight" in message


def test_files_without_columns_are_refused(job: Path) -> None:
    rows = pa.table({"url": ["x.com"]}).select([])
    pyarrow.parquet.write_table(rows, job.parent / "visits" / "empty.parquet")
    message = refused(job, 2, *setting("inputs.visits.path", "visits/*.parquet"))
    assert "inputs.visits: the files of 'visits/*.parquet' have no columns" in message


def test_an_output_inside_of_the_input_is_refused(job: Path) -> None:
    options = (*setting("inputs.visits.path", "visits"), *setting("output.table", "visits/out"))
    message = refused(job, 2, *options)
    assert "output.table" in message
    assert "inputs.visits.path" in message


def test_an_output_around_the_input_is_refused(job: Path) -> None:
    """Which of the two lies in the other is told as it is."""
    folder = job.parent
    message = refused(job, 2, *setting("output.table", "."))
    assert f"output.table: {folder}/visits/a.csv, which inputs.visits.path reads, lies" in message
    assert f"lies in {folder}; inputs and results would be mixed there" in message


def test_a_cluster_that_is_not_there(job: Path) -> None:
    options = setting("cluster.metadata", "grpc+tcp://127.0.0.1:1")
    message = refused(job, 1, *options, *setting("cluster.reconnect_timeout", "1 s"))
    assert "127.0.0.1:1" in message
    assert "are its servers started?" in message
