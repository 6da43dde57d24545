"""Tests of jobs from and to each store by the real command; deltalake reads their tables."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import mrflight
from mrflight.config.input_spec import InputSpec
from mrflight.errors import SchemaMismatchError
from mrflight.sources import open_source
from mrflight.storage import Location, locate
from mrflight.storage.delta import storage_options, table_uri
from tests.services.hdfs import running_hdfs
from tests.services.minio import Bucket, Minio, RecordedBucket
from tests.support.commands.driver import DriverRun, drive, write_job

pytestmark = pytest.mark.runs_on_ray

ROWS, KEYS, FILES = 3000, 70, 3
LARGE_ROWS = 1_900_000
BLOCK_BYTES = 3 << 20
SPLIT_BYTES = 8 << 20
"""The smallest size that a job file may set."""
ODD_VALUES = ["a b", "ü", "x/y", "50%", "k=v", "q?#", "a+b", "plain"]
JOB = """
[job]
name = "stores"
speculation = false
RUN
[inputs.rows]
path = "INPUT"
key = ["k"]
[shuffle]
partitions = PARTITIONS
[reduce]
group_by = ["k"]
aggregate = { v = "sum(v)", rows = "count(*)" }
[output]
table = "TABLE"
mode = "MODE"
partition_by = BY
[storage]
OPTIONS
[cluster]
workers = 2
"""


def table_of(file: int) -> pa.Table:
    """Return the rows of one input file."""
    numbers = range(file * ROWS, (file + 1) * ROWS)
    return pa.table({"k": [number % KEYS for number in numbers], "v": list(numbers)})


def expected(files: int = FILES) -> list[dict[str, int]]:
    numbers = range(files * ROWS)
    found = {k: [n for n in numbers if n % KEYS == k] for k in range(KEYS)}
    return [{"k": k, "v": sum(of_key), "rows": len(of_key)} for k, of_key in found.items()]


def put_inputs(folder: Location, formats: Sequence[str] = ("csv",) * FILES) -> None:
    """Write one file of each format."""
    for file, format in enumerate(formats):
        data = io.BytesIO()
        table = table_of(file)
        if format == "csv":
            pa.csv.write_csv(table, data)
        elif format == "json":
            data.writelines(json.dumps(row).encode() + b"\n" for row in table.to_pylist())
        elif format == "parquet":
            pa.parquet.write_table(table, data, row_group_size=1000)
        else:
            with pa.ipc.new_file(data, table.schema) as writer:
                writer.write_table(table, max_chunksize=1000)
        with folder.child(f"{file}.{format}").create() as out:
            out.write(data.getvalue())


def run(folder: Path, source: str, target: Location, mode: str = "error", **more: Any) -> DriverRun:
    """Run a job from ``source`` to ``target``; ``more`` is passed to `job_file`."""
    return drive(job_file(folder, source, target, mode, **more))


def job_file(
    folder: Path,
    source: str,
    target: Location,
    mode: str = "error",
    run_id: str = "",
    partitions: int = 4,
    by: str = "[]",
) -> Path:
    """Write the job file and return its path."""
    options = "\n".join(f'{key} = "{value}"' for key, value in target.options.items())
    text = JOB.replace("INPUT", source).replace("TABLE", target.url).replace("MODE", mode)
    text = text.replace("RUN", f'run_id = "{run_id}"' if run_id else "").replace("BY", by)
    text = text.replace("PARTITIONS", str(partitions)).replace("OPTIONS", options)
    return write_job(folder, text)


def read(table: Location) -> list[dict[str, int]]:
    """Read the table with deltalake."""
    found = deltalake.DeltaTable(table_uri(table), storage_options=storage_options(table))
    rows: list[dict[str, int]] = found.to_pyarrow_table().select(["k", "v", "rows"]).to_pylist()
    return sorted(rows, key=lambda row: row["k"])


def files(table: Location) -> int:
    """Count the part files of a table."""
    return sum(info.base_name.startswith("part-") for info in table.walk())


@pytest.mark.also_on_ray("s3")
@pytest.mark.everywhere
def test_files_become_a_table(place: Location, tmp_path: Path) -> None:
    """Two files of csv, and one of every other format that is read in splits. One row is bad."""
    formats = ["csv", "csv", "json", "parquet", "arrow"]
    put_inputs(place.child("in"), formats)
    with place.child("in/bad.csv").create() as out:
        out.write(b'"k","v"\n1\n')
    table, bad = place.child("table=1,@a+b"), place.child("bad=1,@a+b")
    job = job_file(tmp_path, place.child("in/*.csv").url, table)
    for format in formats[2:]:
        also = f'[inputs.{format}]\npath = "{place.url}/in/*.{format}"\nkey = ["k"]\n'
        job.write_text(job.read_text() + also)
    done = drive(job, "--set", f"inputs.rows.bad_rows={bad.url}")
    assert done.code == 0, done.stderr
    assert done.result["rows_in"] == len(formats) * ROWS
    assert done.result["bad_rows"] == {"rows": 1}
    (written,) = bad.children()
    row = json.loads(bad.at(written.path).read_bytes())
    assert (row["file"], row["line"], row["text"]) == (place.child("in/bad.csv").url, 2, "1")
    assert done.result["table"] == table.url
    assert read(table) == expected(len(formats))
    assert files(table) == 4


@pytest.mark.slow
def test_large_files_in_many_blocks_of_hdfs_become_a_folder(
    needs_hdfs: None, tmp_path: Path
) -> None:
    """Each row is read once, although splits and row groups do not end where blocks do."""
    rows = pa.table({"k": [n % KEYS for n in range(LARGE_ROWS)], "v": list(range(LARGE_ROWS))})
    text, columns = io.BytesIO(), io.BytesIO()
    pa.csv.write_csv(rows, text)
    pa.parquet.write_table(
        rows, columns, row_group_size=90_000, use_dictionary=False, compression="none"
    )
    with running_hdfs(block_bytes=BLOCK_BYTES) as hdfs:
        place = locate(hdfs.url, tmp_path)
        for name, data in (("1.csv", text), ("1.parquet", columns)):
            assert len(data.getvalue()) > 2 * SPLIT_BYTES > 4 * BLOCK_BYTES
            (tmp_path / name).write_bytes(data.getvalue())
            hdfs.put(tmp_path / name, f"/{name}")
        folder = place.child("folder")
        job = job_file(tmp_path, place.child("1.csv").url, folder)
        also = f'[inputs.columns]\npath = "{place.url}/1.parquet"\nkey = ["k"]\n'
        as_parquet = job.read_text().replace('mode = "error"', 'mode = "error"\nformat = "parquet"')
        job.write_text(as_parquet + also)
        done = drive(job)
        assert done.code == 0, done.stderr
        assert done.result["rows_in"] == 2 * LARGE_ROWS
        assert done.result["attempts"]["map"] >= 6  # three splits of each file, if none is retried
        parts = [info for info in folder.walk() if info.base_name.startswith("part-")]
        found = pa.concat_tables(
            pa.parquet.read_table(io.BytesIO(folder.at(part.path).read_bytes())) for part in parts
        )
    assert {info.extension for info in parts} == {"parquet"}
    sums = rows.group_by("k").aggregate([("v", "sum"), ("v", "count")]).sort_by("k").to_pylist()
    assert found.sort_by("k").to_pylist() == [
        {"k": row["k"], "v": 2 * row["v_sum"], "rows": 2 * row["v_count"]} for row in sums
    ]


@pytest.mark.slow
@pytest.mark.also_on("s3")
def test_a_table_is_read_overwritten_and_appended_to_once(place: Location, tmp_path: Path) -> None:
    put_inputs(place.child("in"))
    first, second = place.child("first"), place.child("second")
    assert run(tmp_path, place.child("in").url, first, by='["rows"]').code == 0
    again = run(tmp_path, place.child("in").url, first, "overwrite", by='["rows"]')
    assert (again.code, again.result["version"]) == (0, 1)
    assert read(first) == expected()
    for _ in range(2):
        done = run(tmp_path, first.url, second, "append", run_id="monday")
        assert done.code == 0, done.stderr
        assert (done.result["version"], done.result["input_versions"]) == (0, {"rows": 1})
    sums = [{"k": row["k"], "v": row["v"], "rows": 1} for row in expected()]
    assert read(second) == sums
    third = run(tmp_path, first.url, second, "append", run_id="tuesday")
    assert (third.code, third.result["version"]) == (0, 1)
    assert read(second) == sorted(sums * 2, key=lambda row: row["k"])


@pytest.mark.slow
def test_a_query_joins_files_with_a_version_of_a_table(place: Location, tmp_path: Path) -> None:
    put_inputs(place.child("in"), ["csv", "parquet"])
    sums, joined = place.child("sums"), place.child("joined")
    assert run(tmp_path, place.child("in/*.csv").url, sums).code == 0
    assert run(tmp_path, place.child("in/*.parquet").url, sums, "overwrite").code == 0
    text = job_file(tmp_path, place.child("in/*.parquet").url, joined).read_text()
    before, _, after = text.partition("[reduce]")
    _, _, after = after.partition("[output]")
    query = (
        "select r.k, sum(r.v) as v, min(s.v) as rows from rows r join sums s on s.k = r.k "
        "where r.k < 50 group by r.k order by r.k desc"
    )
    before = before.replace('name = "stores"', f'name = "stores"\nsql = "{query}"')
    old = f'[inputs.sums]\npath = "{sums.url}"\nversion = 0\n'
    job = write_job(tmp_path, f"{before}{old}[output]{after}".replace('key = ["k"]', ""))
    done = drive(job)
    assert done.code == 0, done.stderr
    ks = [number % KEYS for number in range(2 * ROWS)]
    assert read(joined) == [
        {
            "k": k,
            "v": sum(number for number in range(ROWS, 2 * ROWS) if ks[number] == k),
            "rows": sum(number for number in range(ROWS) if ks[number] == k),
        }
        for k in range(50)
    ]


@pytest.mark.everywhere
def test_unusual_partition_values_are_read_back(place: Location, tmp_path: Path) -> None:
    """The values are in the names of folders, and encoded in the log."""
    rows = pa.table({"k": ODD_VALUES * 2, "v": list(range(2 * len(ODD_VALUES)))})
    pa.csv.write_csv(rows, tmp_path / "in.csv")
    first, second = place.child("first"), place.child("second")
    assert run(tmp_path, "in.csv", first, by='["k"]').code == 0
    done = run(tmp_path, first.url, second)
    assert done.code == 0, done.stderr
    count = len(ODD_VALUES)
    sums = {value: [i + i + count] for i, value in enumerate(ODD_VALUES)}
    for table in (first, second):
        assert {row["k"]: [row["v"]] for row in read(table)} == sums


def test_the_error_for_an_existing_table_has_its_url(place: Location, tmp_path: Path) -> None:
    pa.csv.write_csv(table_of(0), tmp_path / "in.csv")
    table = place.child("table")
    assert run(tmp_path, "in.csv", table).code == 0
    refused = run(tmp_path, "in.csv", table)
    assert refused.code == 2
    assert f"the Delta table {table.url} exists" in refused.message
    assert files(table) == 4


@pytest.mark.also_on("s3")
def test_the_error_for_a_missing_input_has_its_url(place: Location, tmp_path: Path) -> None:
    refused = run(tmp_path, place.child("in/*.csv").url, place.child("table"))
    assert refused.code == 2
    assert f"nothing matches {place.url}/in/*.csv" in refused.message
    assert place.child("table").info().is_file is False
    for secret in place.options.values():
        assert secret not in refused.stderr + refused.stdout


@pytest.mark.everywhere
def test_a_table_name_that_deltalake_would_not_find_is_refused(
    place: Location, tmp_path: Path
) -> None:
    pa.csv.write_csv(table_of(0), tmp_path / "in.csv")
    table = place.child("a table ü")
    done = run(tmp_path, "in.csv", table)
    if place.url.startswith("hdfs:"):
        assert done.code == 2
        assert f"output.table: {table.url}: deltalake finds no table in HDFS" in done.message
    else:
        assert (done.code, read(table)) == (0, expected(1))


def test_a_new_table_in_a_bucket_costs_six_requests_and_each_further_part_one(
    recorded_bucket: RecordedBucket, tmp_path: Path
) -> None:
    """Nothing is copied or removed; compare tables 3.3b and 3.6c of IOStack's D4.3."""
    table_of_all = pa.concat_tables(table_of(file) for file in range(FILES))
    pa.csv.write_csv(table_of_all, tmp_path / "in.csv")
    for partitions in (1, 40):
        table = locate(
            f"{recorded_bucket.url}/table{partitions}", tmp_path, recorded_bucket.options
        )
        before = recorded_bucket.mark()
        done = run(tmp_path, "in.csv", table, partitions=partitions)
        assert done.code == 0, done.stderr
        requests = Counter(request.api for request in recorded_bucket.requests(before))
        looked_up = {"HeadObject": 1} if partitions == 1 else {"ListObjectsV2": 1}
        wanted = Counter(ListObjectsV2=3, PutObject=1 + files(table)) + Counter(looked_up)
        assert requests == wanted
        (rows,) = table_of_all.combine_chunks().to_batches()
        filled = set(mrflight.partition_ids(rows, ["k"], partitions).to_pylist())
        assert files(table) == len(filled)
        assert read(table) == expected()


def test_the_commands_take_a_buckets_options_from_the_environment(
    bucket: Bucket, tmp_path: Path
) -> None:
    pa.csv.write_csv(table_of(0), tmp_path / "in.csv")
    environment = {name.upper(): value for name, value in bucket.options.items()}
    table = locate(f"{bucket.url}/table", tmp_path, bucket.options)
    job = job_file(tmp_path, "in.csv", locate(table.url, tmp_path))
    done = drive(job, environment=environment)
    assert done.code == 0, done.stderr
    assert sum(row["rows"] for row in read(table)) == ROWS
    left = table.child("part-00009-0-20200101T000000-0123456789ab.parquet")
    with left.create() as file:
        file.write(b"half a file")
    cleaned = subprocess.run(
        [sys.executable, "-m", "mrflight", "clean", table.url, "--older-than", "0 s", "--remove"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert (cleaned.returncode, cleaned.stdout.count("part-")) == (0, 1), cleaned.stderr
    assert files(table) == 4


def test_nested_paths_in_different_stores_are_no_conflict(
    minio: Minio, bucket: Bucket, tmp_path: Path
) -> None:
    """The output is below, at and above the input's path, in another bucket and on a disk."""
    with minio.bucket() as second:
        for case, output in enumerate(("in/out", "in", "")):
            folder = f"{tmp_path}/{case}"
            source = locate(f"{bucket.url}{folder}/in", tmp_path, bucket.options)
            put_inputs(source)
            for start in (second.url, ""):
                target = locate(f"{start}{folder}/{output}", tmp_path, bucket.options)
                done = run(tmp_path, source.url, target)
                assert done.code == 0, done.stderr
                assert read(target) == expected()


def test_an_output_in_its_input_is_refused_however_the_url_is_written(
    bucket: Bucket, tmp_path: Path
) -> None:
    """An input or output may be a whole bucket; the message has both URLs."""
    source = locate(bucket.url, tmp_path, bucket.options)
    put_inputs(source)
    done = run(tmp_path, bucket.url.replace("s3:", "s3a:"), source.child("out"))
    assert done.code == 2
    assert (
        f"output.table: {bucket.url}/out lies in {bucket.url}/, which inputs.rows.path reads; "
        in (done.message)
    )
    put_inputs(source.child("in"))
    done = run(tmp_path, f"{bucket.url}/in/*.csv", source)
    assert done.code == 2
    message = f"{bucket.url}/in/0.csv, which inputs.rows.path reads, lies in {bucket.url}/; inputs"
    assert message in done.message


def test_the_error_for_a_bucket_with_a_table_has_its_url(bucket: Bucket, tmp_path: Path) -> None:
    pa.csv.write_csv(table_of(0), tmp_path / "in.csv")
    table = locate(f"{bucket.url}/e1", tmp_path, bucket.options)
    assert run(tmp_path, "in.csv", table).code == 0
    done = run(tmp_path, bucket.url, locate("out", tmp_path, bucket.options))
    assert done.code == 2
    assert f"{bucket.url}/ contains a Delta table, {table.url}; use" in done.message


@pytest.mark.parametrize("format", ["csv", "json", "parquet", "arrow"])
def test_the_error_for_different_schemas_has_the_urls(
    bucket: Bucket, tmp_path: Path, format: str
) -> None:
    folder = locate(f"{bucket.url}/in", tmp_path, bucket.options)
    put_inputs(folder, [format])
    with folder.child(f"1.{format}").create() as out:
        words = pa.table({"k": ["a"], "v": ["b"]})
        if format == "csv":
            pa.csv.write_csv(words, out)
        elif format == "json":
            out.write(b'{"k": "a", "v": "b"}')
        elif format == "parquet":
            pa.parquet.write_table(words, out)
        else:
            with pa.ipc.new_file(out, words.schema) as writer:
                writer.write_table(words)
    with pytest.raises(SchemaMismatchError) as caught:
        open_source("rows", InputSpec(path=folder.url), tmp_path, bucket.options, 1 << 20)
    assert f"{folder.url}/1.{format}: column 'k' " in str(caught.value)
    assert f" in {folder.url}/0.{format}; " in str(caught.value)


def test_a_job_from_and_to_file_urls(tmp_path: Path) -> None:
    """Names in file URLs are taken literally, and the first one is no host."""
    put_inputs(locate("in %41", tmp_path))
    table = locate("a table", tmp_path)
    url = f"file://{table.path}"
    job = job_file(tmp_path, f"file://{tmp_path}/in %41/*.csv", table)
    job.write_text(job.read_text().replace(f'"{table.path}"', f'"{url}"'))
    done = drive(job)
    assert (done.code, done.result["table"]) == (0, table.path), done.stderr
    assert read(table) == expected()
    second = locate("second", tmp_path)
    assert run(tmp_path, f"file://localhost{table.path}", second).code == 0
    assert len(read(second)) == KEYS
    job = job_file(tmp_path, "in %41", table)
    job.write_text(job.read_text().replace(f'"{table.path}"', '"file://out/clicks"'))
    refused = drive(job)
    assert refused.code == 2
    assert "file://out/clicks: what follows file:// is a host" in refused.message
