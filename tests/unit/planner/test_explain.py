"""``mrflight explain``: the plan of small jobs in words, and mistakes as running them tells."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from tests.support.explained import CLICKS, explained

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
    code, out, told = explained(clicks_folder, capsys, CLICKS)
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


def test_a_stage_that_reads_another(
    clicks_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, told = explained(clicks_folder, capsys, STAGES)
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
        (["output.tabel=x"], "output.tabel: unknown key; did you mean 'table'?"),
        (["cluster.memory=1 MiB"], "cluster.memory: 1.0 MiB is too little for 2 workers"),
        (["output.table=visits"], "output.table: "),
    ],
)
def test_a_mistake_is_told_as_running_it_would(
    clicks_folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], told: str
) -> None:
    code, out, said = explained(clicks_folder, capsys, CLICKS, "--set", *options)
    assert (code, out) == (2, "")
    assert said.startswith(f"mrflight: {told}")


def test_a_standing_cluster_has_its_own_memory(
    clicks_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("cluster.metadata=grpc+tcp://127.0.0.1:1", "cluster.workers=1")
    code, out, _ = explained(clicks_folder, capsys, CLICKS, *(f"--set={each}" for each in options))
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
    clicks_folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], told: str
) -> None:
    code, out, _ = explained(clicks_folder, capsys, CLICKS, *(f"--set={each}" for each in options))
    assert code == 0
    assert out.startswith(f"clicks: 1 stage, 2 workers, 1 data server\n{told}")


def test_what_a_ray_will_decide_is_told(
    clicks_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = CLICKS.replace("workers = 2", 'executor = "ray"\nray_address = "auto"')
    assert (
        "\non the Ray at auto\ncluster.workers as on this machine; unless told, they follow from "
        "all of its nodes\n\n"
    ) in explained(clicks_folder, capsys, text)[1]


def test_a_function_of_a_later_stage_is_looked_for(
    clicks_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, told = explained(
        clicks_folder, capsys, STAGES, "--set", "inputs.urls.map=clicks:wiegh"
    )
    assert code == 2
    assert told == "mrflight: inputs.urls.map: module 'clicks' has no function 'wiegh'\n"


def test_a_run_that_was_committed_is_told(
    clicks_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = CLICKS.replace('name = "clicks"', 'name = "clicks"\nrun_id = "today"')
    assert "was committed" not in explained(clicks_folder, capsys, text)[1]
    done = CommitProperties(app_transactions=[Transaction("mrflight/clicks/today", 0)])
    write_deltalake(
        clicks_folder / "out" / "clicks", pa.table({"url": ["x"]}), commit_properties=done
    )
    code, out, _ = explained(clicks_folder, capsys, text)
    assert code == 0
    assert out.endswith("run 'today' was committed before: there is nothing to do\n")
