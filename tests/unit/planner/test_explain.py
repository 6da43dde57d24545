"""Tests of ``mrflight explain``: plans of small jobs, and the same errors as those of ``run``."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from tests.support.commands.explain_command import CLICKS, explained

STAGES = """
[job]
name = "top"
[stages.per-url.inputs.visits]
path = "visits"
[stages.per-url.reduce]
group_by = ["url"]
aggregate = { visitors = "count_distinct(visitor)" }
[inputs.urls]
stage = "per-url"
[shuffle]
compression = "zstd"
[reduce]
sort_by = ["visitors desc", "url"]
[output]
table = "out/top"
format = "parquet"
partition_by = ["visitors"]
[cluster]
workers = 4
data_servers = 2
memory = "4 GiB"
spill_dir = "spilled"
"""


def test_a_job_of_one_stage(clicks_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = explained(clicks_folder, capsys, CLICKS)
    assert (code, err) == (0, "")
    assert out == textwrap.dedent(
        """\
        job:            clicks, 1 stage
        workers:        2
        data servers:   1

        input visits:   csv, 2 files, 3.9 KiB
          maps:         2, up to 2.0 KiB each
          columns:      url, visitor
          map:          clicks:weigh
          shuffle:      by hash of url
        partitions:     7 (set by the job)
        combine:        if it leaves at most half of the first rows of a map
        compression:    none (about 3.9 KiB of rows, less than 256.0 MiB)
        reduce:         group by url: clicks = sum(weight), visits = count(*)
        part files:     one for each partition that has rows

        memory:         4.0 GiB for all processes (set by the job)
          data servers: 1.9 GiB, then spill to FOLDER/spilled
          map:          writer 128.0 MiB, combiner 64.0 MiB
          reduce:       rows 478.2 MiB, encoder 239.1 MiB
        output:         FOLDER/out/clicks
          format:       delta
          mode:         overwrite
        """
    )


def test_the_columns_of_files_of_different_schemas(
    clicks_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = CLICKS.replace("[inputs.visits]", '[inputs.visits]\nschema = "union"')
    file = clicks_folder / "visits" / "z.csv"
    file.write_text("url,visitor\nx.com,1.5\n")
    code, out, err = explained(clicks_folder, capsys, job)
    assert (code, err) == (0, "")
    assert "\n  union:        visitor is double instead of int64\n" in out
    names = [f"c{number}" for number in range(12)]
    file.write_text(f"url,visitor,{','.join(names)}\n")
    job = job.replace('"visitor"]', f'"visitor", {", ".join(map(repr, names))}]')
    code, out, err = explained(clicks_folder, capsys, job)
    assert (code, err) == (0, "")
    assert "c9 is null in 2 files; and 2 more\n" in out


def test_how_many_small_files_a_map_reads(
    clicks_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(80):
        (clicks_folder / "visits" / f"{number}.csv").write_text("url,visitor,ms\nx.com,5,3\n")
    code, out, err = explained(clicks_folder, capsys, CLICKS)
    assert (code, err) == (0, "")
    assert "input visits:   csv, 82 files, 5.9 KiB\n" in out
    assert "\n  maps:         5, up to 3.9 KiB of 20 files each\n" in out


def test_a_sample_of_an_input(clicks_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--set", "inputs.visits.sample=0.5"]
    code, out, err = explained(clicks_folder, capsys, CLICKS, *options)
    assert (code, err) == (0, "")
    assert "input visits:   csv, 1 file, 2.0 KiB\n  sample:       0.5 of 3.9 KiB\n" in out


@pytest.mark.parametrize(
    ("bad_rows", "shown"),
    [("skip", "counted"), ("bad", "written to FOLDER/bad")],
)
def test_bad_rows_that_are_skipped(
    bad_rows: str, shown: str, clicks_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--set", f"inputs.visits.bad_rows={bad_rows}"]
    code, out, err = explained(clicks_folder, capsys, CLICKS, *options)
    assert (code, err) == (0, "")
    assert f"csv, 2 files, 3.9 KiB\n  bad rows:     skipped and {shown}\n" in out


@pytest.mark.parametrize(
    ("bad_rows", "message"),
    [
        ("visits/bad", r"/visits/bad lies in .*/visits, which inputs\.visits\.path reads"),
        ("visits", r"/visits lies in .*/visits, which inputs\.visits\.path reads"),
        (".", r"/visits/a\.csv, which inputs\.visits\.path reads, lies in"),
        ("out/clicks/bad", r"/out/clicks/bad and output\.table, .*/out/clicks, must not lie in"),
        ("out", r"/out and output\.table, .*/out/clicks, must not lie in one another"),
    ],
)
def test_bad_rows_lie_apart(
    bad_rows: str, message: str, clicks_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--set=inputs.visits.path=visits", f"--set=inputs.visits.bad_rows={bad_rows}"]
    code, _, err = explained(clicks_folder, capsys, CLICKS, *options)
    assert code == 2
    assert re.search(rf"inputs\.visits\.bad_rows: .*{message}", err), err


def test_a_stage_that_reads_another(
    clicks_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = explained(clicks_folder, capsys, STAGES)
    assert (code, err) == (0, "")
    assert out == textwrap.dedent(
        """\
        job:            top, 2 stages
        workers:        4
        data servers:   2

        stage:          per-url
        input visits:   csv, 2 files, 3.9 KiB
          maps:         2, up to 2.0 KiB each
          shuffle:      by hash of url
        partitions:     1 (by size: about 3.9 KiB of rows, up to 57.3 MiB each, a quarter of a reduce's memory)
        combine:        no (visitors counts values that may come from several maps); columns sent: url, visitor
        compression:    zstd (set by the job)
        reduce:         group by url: visitors = count_distinct(visitor)

        stage:          the job's own
          estimated:    planned again after per-url
        input urls:     result of stage per-url
          shuffle:      to one partition
        partitions:     1 (by size: about 3.9 KiB of rows, up to 57.3 MiB each, a quarter of a reduce's memory)
        combine:        no (every row is in the result)
        compression:    zstd (set by the job)
        reduce:         rows as they are, sorted by visitors desc, url
        part files:     one for each partition; small neighbors are coalesced

        memory:         4.0 GiB for all processes (set by the job)
          data servers: 1.8 GiB, then spill to FOLDER/spilled
          map:          writer 128.0 MiB, combiner 64.0 MiB
          reduce:       rows 229.1 MiB, encoder 114.6 MiB
          reduce and map: rows 114.6 MiB, writer 64.0 MiB, combiner 32.0 MiB
        output:         FOLDER/out/top
          format:       parquet
          mode:         error
          partition by: visitors
        """  # noqa: E501
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["shuffle.partitions=0"], "shuffle.partitions must be from 1 to 100000"),
        (["inputs.visits.path=nothing/*.csv"], "inputs.visits.path: nothing matches"),
        (["inputs.visits.map=clicks:wiegh"], "inputs.visits.map: module 'clicks' ("),
        (["output.tabel=x"], "output.tabel: unknown key; did you mean 'table'?"),
        (["cluster.memory=1 MiB"], "cluster.memory: 1.0 MiB is too little for 2 workers"),
        (["output.table=visits"], "output.table: "),
    ],
)
def test_a_mistake_is_reported_as_by_run(
    clicks_folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    code, out, err = explained(clicks_folder, capsys, CLICKS, "--set", *options)
    assert (code, out) == (2, "")
    assert err.startswith(f"mrflight: {message}")


def test_a_standing_cluster_has_its_own_memory(
    clicks_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("cluster.metadata=grpc+tcp://127.0.0.1:1", "cluster.workers=1")
    code, out, _ = explained(clicks_folder, capsys, CLICKS, *(f"--set={each}" for each in options))
    assert code == 0
    assert "\nworkers:        1\ndata servers:   those of grpc+tcp://127.0.0.1:1\n" in out
    assert "\n  map: " in out
    assert "\n  data servers: " not in out


@pytest.mark.parametrize(
    ("options", "cluster"),
    [
        (["cluster.executor=ray"], "started and ended by the job"),
        (
            ["cluster.executor=ray", "cluster.ray_address=auto"],
            "auto",
        ),
    ],
)
def test_a_job_on_ray(
    clicks_folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], cluster: str
) -> None:
    code, out, _ = explained(clicks_folder, capsys, CLICKS, *(f"--set={each}" for each in options))
    assert code == 0
    assert f"\nray:            {cluster}\nworkers:        2\n" in out


def test_values_that_ray_decides_are_marked(
    clicks_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = CLICKS.replace("workers = 2", 'executor = "ray"\nray_address = "auto"')
    out = explained(clicks_folder, capsys, text)[1]
    assert "\nray:            auto\n" in out
    assert re.search(
        r"\nworkers: +\d+ \(as on this machine; Ray decides by all of its nodes\)", out
    )


def test_a_function_of_a_later_stage_is_checked(
    clicks_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = explained(clicks_folder, capsys, STAGES, "--set", "inputs.urls.map=clicks:wiegh")
    assert code == 2
    assert err.startswith("mrflight: inputs.urls.map: module 'clicks' (")
    assert err.endswith(" has no function 'wiegh'; did you mean 'weigh'?\n")


def test_a_committed_run_is_reported(
    clicks_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = CLICKS.replace('name = "clicks"', 'name = "clicks"\nrun_id = "today"')
    assert "  committed:" not in explained(clicks_folder, capsys, text)[1]
    done = CommitProperties(app_transactions=[Transaction("mrflight/clicks/today", 0)])
    write_deltalake(
        clicks_folder / "out" / "clicks", pa.table({"url": ["x"]}), commit_properties=done
    )
    code, out, _ = explained(clicks_folder, capsys, text)
    assert code == 0
    assert out.endswith("  committed:    run 'today'; there is nothing to do\n")
    other = CLICKS.replace('name = "clicks"', 'name = "clicks/today"\nrun_id = "at 5/6"')
    done = CommitProperties(app_transactions=[Transaction("mrflight/clicks%2Ftoday/at 5%2F6", 0)])
    write_deltalake(
        clicks_folder / "out" / "clicks",
        pa.table({"url": ["x"]}),
        mode="append",
        commit_properties=done,
    )
    assert "  committed:    run 'at 5/6';" in explained(clicks_folder, capsys, other)[1]
