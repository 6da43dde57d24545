"""``mrflight explain``: the plan of small jobs in words, and mistakes as running them tells."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from mrflight import cli
from mrflight.ids import MAX_PARTITIONS
from mrflight.job_graph import StageJob
from mrflight.partition_count import PartitionCount, Reason, count_partitions
from mrflight.sources import open_source
from mrflight.stage_words import StageWords
from tests.support.leftovers import tree
from tests.support.plans import MEMORY, Plan, job, planner

CLICKS = """
[job]
name = "clicks"
[inputs.visits]
path = "visits/*.csv"
map = "clicks:weigh"
columns = ["url", "visitor"]
[shuffle]
partitions = 7
[reduce]
group_by = ["url"]
aggregate = { clicks = "sum(weight)", visits = "count(*)" }
[output]
table = "out/clicks"
mode = "overwrite"
[cluster]
workers = 2
memory = "4 GiB"
spill_dir = "spilled"
"""

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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "visits").mkdir()
    (tmp_path / "spilled").mkdir()
    for name in ("a", "b"):
        (tmp_path / "visits" / f"{name}.csv").write_text("url,visitor\n" + "x,1\n" * 500)
    (tmp_path / "clicks.py").write_text("def weigh(batch):\n    return batch\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "clicks", raising=False)
    return tmp_path


def explained(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, *options: str
) -> tuple[int, str, str]:
    """The exit code, and what is on stdout and stderr."""
    (folder / "job.toml").write_text(text)
    before = tree(folder)
    code = cli.main(["explain", str(folder / "job.toml"), *options])
    after, before = (
        {path for path in each if "__pycache__" not in path} for each in (tree(folder), before)
    )
    assert after == before
    out, told = capsys.readouterr()
    return code, out.replace(str(folder), "FOLDER"), told


def test_a_job_of_one_stage(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, told = explained(folder, capsys, CLICKS)
    assert (code, told) == (0, "")
    assert out == textwrap.dedent(
        """\
        clicks: 1 stage, 2 workers, 1 data server

        input visits    csv, 2 files, 3.9 KiB, 2 maps of at most 2.0 KiB
          columns       url, visitor
          map           clicks:weigh
          rows go       by the hash of url
        partitions      7, as the job says
        combined        where the first rows of a map show that it leaves half of them or fewer
        compression     none, as about 3.9 KiB of rows are less than 256.0 MiB
        makes           groups by url: clicks = sum(weight), visits = count(*)
        part files      one for each partition that has rows

        memory          4.0 GiB for all processes together, as the job says
          data servers  1.9 GiB before they write to FOLDER/spilled
          a map         128.0 MiB for what is not sent yet, 64.0 MiB to combine rows
          a reduce      478.2 MiB for its rows, 239.1 MiB for those that wait to be encoded
        output          FOLDER/out/clicks, a Delta table, whose rows are replaced
        """
    )


def test_a_stage_that_reads_another(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, told = explained(folder, capsys, STAGES)
    assert (code, told) == (0, "")
    assert out == textwrap.dedent(
        """\
        top: 2 stages, 4 workers, 2 data servers

        stage per-url
        input visits    csv, 2 files, 3.9 KiB, 2 maps of at most 2.0 KiB
          rows go       by the hash of url
        partitions      1, as about 3.9 KiB of rows fit in one of 57.3 MiB, a quarter of a reduce's memory
        combined        no: visitors counts values that may come in several maps; only url, visitor of each row are sent
        compression     zstd, as the job says
        makes           groups by url: visitors = count_distinct(visitor)

        the last stage, in estimates: per-url will tell what there is to move
        input urls      what stage per-url makes, a map for some partitions
          rows go       to one partition
        partitions      1, as about 3.9 KiB of rows fit in one of 57.3 MiB, a quarter of a reduce's memory
        combined        no: every row is in the result
        compression     zstd, as the job says
        makes           its rows, sorted by visitors desc, url
        part files      one for each partition, or for small neighbours together

        memory          4.0 GiB for all processes together, as the job says
          data servers  1.8 GiB before they write to FOLDER/spilled
          a map         128.0 MiB for what is not sent yet, 64.0 MiB to combine rows
          a reduce      229.1 MiB for its rows, 114.6 MiB for those that wait to be encoded
          both in one   114.6 MiB for the rows of a stage, 64.0 MiB for what is not sent yet, 32.0 MiB to combine rows
        output          FOLDER/out/top, a folder of parquet files, which is not to be there yet, with a folder for each visitors
        """  # noqa: E501
    )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["shuffle.partitions=0"], "shuffle.partitions: 0 is not from 1 to 100000"),
        (["inputs.visits.path=nothing/*.csv"], "inputs.visits.path: nothing matches"),
        (["inputs.visits.map=clicks:wiegh"], "inputs.visits.map: module 'clicks' has no function"),
        (["output.tabel=x"], "output.tabel: no such key; did you mean 'table'?"),
        (["cluster.memory=1 MiB"], "cluster.memory: 1.0 MiB is too little for 2 workers"),
        (["output.table=visits"], "output.table: "),
    ],
)
def test_a_mistake_is_told_as_running_it_would(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], told: str
) -> None:
    code, out, said = explained(folder, capsys, CLICKS, "--set", *options)
    assert (code, out) == (2, "")
    assert said.startswith(f"mrflight: {told}")


def test_a_standing_cluster_has_its_own_memory(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("cluster.metadata=grpc+tcp://127.0.0.1:1", "cluster.workers=1")
    code, out, _ = explained(folder, capsys, CLICKS, *(f"--set={each}" for each in options))
    assert code == 0
    assert out.startswith("clicks: 1 stage, 1 worker, data servers of grpc+tcp://127.0.0.1:1\n")
    assert "\n  a map " in out
    assert "\n  data servers " not in out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["cluster.executor=ray"], "on a Ray of this machine, which the job starts and ends\n\n"),
        (
            ["cluster.executor=ray", "cluster.ray_address=auto"],
            "on the Ray at auto\n\n",
        ),
    ],
)
def test_a_job_on_ray(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], told: str
) -> None:
    code, out, _ = explained(folder, capsys, CLICKS, *(f"--set={each}" for each in options))
    assert code == 0
    assert out.startswith(f"clicks: 1 stage, 2 workers, 1 data server\n{told}")


def test_what_a_ray_will_decide_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = CLICKS.replace("workers = 2", 'executor = "ray"\nray_address = "auto"')
    assert (
        "\non the Ray at auto\ncluster.workers as on this machine; unless told, they follow from "
        "all of its nodes\n\n"
    ) in explained(folder, capsys, text)[1]


JOIN = """
[job]
name = "joined"
[inputs.visits]
path = "visits"
key = ["visitor"]
columns = ["visitor"]
[inputs.users]
path = "visits/a.csv"
key = ["url"]
columns = ["url"]
[reduce]
join = "left"
left = "visits"
[output]
table = "out"
"""


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        (
            [],
            [
                "  rows go       by the hash of visitor",
                "  rows go       by the hash of url",
                "combined        no: rows meet those of the other inputs first",
                "makes           the left join of visits by visitor and users by url",
            ],
        ),
        (
            ["inputs.users.broadcast=true"],
            [
                "  rows go       to everyone",
                "  rows go       nowhere: they meet those of the other inputs where they are read",
                "partitions      1, as everyone reads all of it",
                "makes           the left join of visits by visitor and users by url",
                "part files      of rows that are shuffled once more, in turn",
            ],
        ),
        (
            ['reduce.sort_by=["visitor"]', "reduce.limit=3"],
            [
                "stage job.rows",
                "partitions      1, as each map sends only its first rows",
                "combined        each map sends at most 3 rows, the first in the order",
                "makes           its rows, sorted by visitor, the first 3 of the result",
            ],
        ),
    ],
)
def test_joins_and_limits(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], lines: list[str]
) -> None:
    (folder / "visits" / "a.csv").write_text("url,visitor\n3,1\n")
    (folder / "visits" / "b.csv").unlink()
    code, out, told = explained(folder, capsys, JOIN, *(f"--set={each}" for each in options))
    assert (code, told) == (0, "")
    told_lines = iter(out.splitlines())
    assert [line for line in lines if line not in told_lines] == []  # in this order


SHARED = (
    "a partition much larger than others is shared by several tasks: the rows of {}, and each "
    "reads all of the other side"
)


@pytest.mark.parametrize(
    ("sections", "partitions", "names"),
    [
        ({"reduce": {"join": "inner"}}, 3, "visits or users"),
        ({"reduce": {"join": "left"}}, 3, "visits"),
        ({"reduce": {"join": "right"}}, 3, "users"),
        ({"reduce": {"join": "full"}}, 3, None),
        ({"reduce": {"join": "inner"}}, 1, None),  # it is not larger than others
        ({"reduce": {"join": "inner"}, "shuffle": {"partitions": 3}}, 3, None),  # as many files
        (
            {"reduce": {"join": "inner"}, "shuffle": {"partitions": 3}, "output": {"table": ""}},
            3,
            "visits or users",
        ),
    ],
)
def test_who_shares_the_heavy_keys_of_a_join(
    tmp_path: Path, sections: dict[str, Any], partitions: int, names: str | None
) -> None:
    files = {"visits": "visits.csv", "users": "more.csv"}
    inputs = {
        name: {"path": path, "key": ["url"], "broadcast": False} for name, path in files.items()
    }
    plan, spec = planner(tmp_path), job(**{"inputs": inputs, **sections})
    planned = plan(spec)
    planned = replace(planned, counted=replace(planned.counted, number=partitions))
    sources = {name: open_source(name, spec.inputs[name], tmp_path, {}, 100) for name in inputs}
    words = dict(StageWords(StageJob("", "", spec), planned, sources).lines())
    assert words.get("heavy keys") == (names and SHARED.format(names))


def test_a_function_of_a_later_stage_is_looked_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, told = explained(folder, capsys, STAGES, "--set", "inputs.urls.map=clicks:wiegh")
    assert code == 2
    assert told == "mrflight: inputs.urls.map: module 'clicks' has no function 'wiegh'\n"


def test_a_run_that_was_committed_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = CLICKS.replace('name = "clicks"', 'name = "clicks"\nrun_id = "today"')
    assert "was committed" not in explained(folder, capsys, text)[1]
    done = CommitProperties(app_transactions=[Transaction("mrflight/clicks/today", 0)])
    write_deltalake(folder / "out" / "clicks", pa.table({"url": ["x"]}), commit_properties=done)
    code, out, _ = explained(folder, capsys, text)
    assert code == 0
    assert out.endswith("run 'today' was committed before: there is nothing to do\n")


@pytest.mark.parametrize(
    ("sections", "line"),
    [
        (
            {"shuffle": {"partitioner": "range"}},
            "rows go      by ranges of url, cut after a sample",
        ),
        ({"shuffle": {"partitioner": "round_robin"}}, "rows go      to each partition in turn"),
        ({"shuffle": {"partitioner": "a:b"}}, "rows go      where a:b puts them, by url"),
        ({}, "combined     no: every row is in the result"),
        ({"reduce": {"function": "a:b"}}, "combined     no: a:b sees all rows"),
        ({"reduce": {"sql": "select url from visits"}}, "combined     no: sql sees all rows"),
        (
            {"reduce": {"group_by": ["url"]}, "shuffle": {"partitioner": "a:b"}},
            "combined     no: the partitioner a:b may look at any column",
        ),
        ({"reduce": {"function": "a:b"}}, "makes        what a:b makes of its rows"),
        ({"shuffle": {"partitioner": "range"}}, "makes        its rows, sorted by url"),
        (
            {"output": {"table": "out", "mode": "merge", "keys": ["url"]}},
            "makes        its rows, one row for each url",
        ),
    ],
)
def test_what_a_stage_does(tmp_path: Path, sections: dict[str, Any], line: str) -> None:
    assert any(each.startswith(line) for each in words_of(planner(tmp_path), tmp_path, sections))


def test_one_row_of_all_rows(tmp_path: Path) -> None:
    sections = {"inputs": {"visits": {"path": "visits.csv"}}}
    reduce = {"aggregate": {"n": "count(*)", "w": "count_distinct(weight)"}}
    words = words_of(planner(tmp_path), tmp_path, {**sections, "reduce": reduce})
    assert "rows go      to one partition" in words
    assert "partitions   1, as one row is made of all rows" in words
    assert "makes        one row of all rows: n = count(*), w = count_distinct(weight)" in words
    (combined,) = (each for each in words if each.startswith("combined"))
    assert combined.endswith("come in several maps; only weight of each row are sent")


def words_of(plan: Plan, folder: Path, sections: dict[str, Any]) -> list[str]:
    spec = job(**sections)
    source = open_source("visits", spec.inputs["visits"], folder, {}, 100)
    words = StageWords(StageJob("", "", spec), plan(spec), {"visits": source})
    return [f"{label.strip():<12} {text}" for label, text in words.lines()]


MIB = 2**20


@pytest.mark.parametrize(
    ("rows_bytes", "workers", "why"),
    [
        (MIB, 4, "1, as about 1.0 MiB of rows fit in one of 64.0 MiB"),
        (640 * MIB, 4, "10, as about 640.0 MiB of rows fill 10 of 64.0 MiB"),
        (65 * MIB, 4, "4, one for each worker: about 65.0 MiB of rows fill 2 of 64.0 MiB"),
        (
            2**50,
            4,
            "8,192, as a map has memory for a block of 16.0 KiB for each of no more: about 1.0 PiB "
            "of rows fill 16,777,216 of 64.0 MiB",
        ),
        (2**50, MAX_PARTITIONS + 1, "100,000, the most that a shuffle has: about 1.0 PiB of rows"),
    ],
)
def test_why_so_many_partitions(tmp_path: Path, rows_bytes: int, workers: int, why: str) -> None:
    plan = planner(tmp_path)
    spec = job()
    counted = count_partitions(spec, rows_bytes, workers, MEMORY)
    words = StageWords(StageJob("", "", spec), replace(plan(spec), counted=counted), {})
    assert f"{counted.number:,}, {words.why_so_many()}".startswith(why)


@pytest.mark.parametrize("reason", get_args(Reason))
def test_every_reason_has_words(tmp_path: Path, reason: Reason) -> None:
    spec = job()
    counted = PartitionCount(3, reason, 130 * MIB, 64 * MIB)
    plan = replace(planner(tmp_path)(spec), counted=counted)
    words = StageWords(StageJob("", "", spec), plan, {}).why_so_many()
    assert words.startswith(("as ", "one for each worker: ", "the most that a shuffle has: "))


@pytest.mark.parametrize(
    ("sections", "columns"),
    [
        ({"reduce": {"group_by": ["url"]}}, ["columns      url"]),
        ({"reduce": {"aggregate": {"w": "sum(weight)"}}}, ["columns      weight"]),
        ({"reduce": {"aggregate": {"n": "count(*)"}}}, ["columns      url"]),  # some column
        ({}, []),
    ],
)
def test_columns_are_told_where_some_are_not_needed(
    tmp_path: Path, sections: dict[str, Any], columns: list[str]
) -> None:
    pq.write_table(pa.table({"url": ["a"], "weight": [1]}), tmp_path / "visits.parquet")
    key = [] if "aggregate" in sections.get("reduce", {}) else ["url"]
    sections = {**sections, "inputs": {"visits": {"path": "visits.parquet", "key": key}}}
    words = words_of(planner(tmp_path), tmp_path, sections)
    assert [each for each in words if each.startswith("columns")] == columns


def test_sql_that_is_not_of_whole_keys_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("datafusion")
    text = CLICKS[: CLICKS.index("[reduce]")] + CLICKS[CLICKS.index("[output]") :]
    text = text.replace('map = "clicks:weigh"\n', 'key = ["url"]\n')
    sql = "select visitor, count(*) n from visits group by visitor"
    code, out, told = explained(folder, capsys, f'{text}[reduce]\nsql = "{sql}"\n')
    assert (code, out) == (2, "")
    assert "reduce.sql: this sql is told of a partition at a time, of visits by url, and it" in told
    text = text.replace("partitions = 7", "partitions = 1")
    code, out, told = explained(folder, capsys, f'{text}[reduce]\nsql = "{sql}"\n')
    assert (code, told) == (0, "")
    keyless = text.replace("partitions = 1", "partitions = 7").replace('key = ["url"]\n', "")
    code, out, told = explained(folder, capsys, f'{keyless}[reduce]\nsql = "{sql}"\n')
    assert (code, told) == (0, "")
    assert "1, as sql of inputs without a key sees all rows" in out
