"""Rows that were pushed to an event log come to a table once, and are trimmed then."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import mrflight
from mrflight.storage import locate
from mrflight.storage.tail_file import TailFile, write_tail_file
from mrflight.streams import log_positions
from tests.support.clusters.event_logs import PATIENT, LogCluster, log_cluster, numbers
from tests.support.streams.ingest_job import ingest, ingesting
from tests.support.suite.waiting import await_that

JOB = """
[job]
name = "pushed"
[inputs.rows]
log = "{log}"
[stream]
commit = "50 ms"
max_rows = {max_rows}
[output]
table = "out"
mode = "append"
[cluster]
metadata = "{metadata}"
workers = 2
"""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogCluster]:
    with log_cluster(
        tmp_path_factory.mktemp("logs"), data_servers=2, heartbeat_timeout=PATIENT
    ) as started:
        yield started


def write_job(servers: LogCluster, folder: Path, log: str, max_rows: int = 100) -> Path:
    path = folder / "job.toml"
    path.write_text(JOB.format(log=log, metadata=servers.location, max_rows=max_rows))
    return path


def rows(folder: Path) -> pa.Table:
    return deltalake.DeltaTable(folder / "out").to_pyarrow_table()


@pytest.mark.slow
def test_pushed_rows_are_committed_once(servers: LogCluster, tmp_path: Path) -> None:
    job = write_job(servers, tmp_path, "once")
    with servers.connect() as cluster:
        cluster.create_log("once")
        cluster.append("once", numbers(0, *range(250)))
        run = ingest(job)
        assert run.code == 0, run.stderr
        assert (run.result["rows_in"], run.result["commits"]) == (250, 3)
        assert ingest(job).result["commits"] == 0
        with ingesting(job) as process:
            cluster.append("once", numbers(0, *range(250, 400)))
            await_that(lambda: len(rows(tmp_path)) == 400, "all rows")
            process.kill()
        cluster.append("once", numbers(0, *range(400, 410)))
        assert ingest(job).result["rows_in"] == 10
    assert sorted(rows(tmp_path)["n"].to_pylist()) == list(range(410))


def test_a_log_that_was_made_anew_is_refused(servers: LogCluster, tmp_path: Path) -> None:
    job = write_job(servers, tmp_path, "anew")
    with servers.connect() as cluster:
        cluster.create_log("anew")
        cluster.append("anew", numbers(0, 1, 2, 3))
        assert ingest(job).code == 0
        cluster.drop_log("anew")
        cluster.create_log("anew")
        cluster.append("anew", numbers(0, 4))
    run = ingest(job)
    assert run.code == 2
    assert "was dropped and made anew" in run.message


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["enough", "earliest", "less than comes later", "a copy is older"])
def test_a_log_that_has_gone_back_ends_the_stream(
    lost: str, servers: LogCluster, tmp_path: Path
) -> None:
    """Its new rows have offsets that the table has recorded, and would never be read."""
    log = lost.replace(" ", "-")
    job = write_job(servers, tmp_path, log)
    if lost == "earliest":
        job.write_text(
            job.read_text().replace("[stream]", '[stream]\non_lost_offsets = "earliest"')
        )
    with servers.connect() as cluster:
        cluster.create_log(log)
        for first in range(0, 30, 10):
            cluster.append(log, numbers(0, *range(first, first + 10)))
            if first == 10:
                owner = servers.owner(log)
                (segment,) = servers.log_dir(owner).glob(f"{log}:*/*.segment")
                earlier = segment.read_bytes()
        assert ingest(job).result["rows_in"] == 30
        version = deltalake.DeltaTable(tmp_path / "out").version()
        servers.kill_data(owner)
        data = bytearray(segment.read_bytes())
        data[-20] ^= 1  # of the last group, which may be one that a crash has cut short
        segment.write_bytes(earlier if lost == "a copy is older" else data)
        servers.restart_data(owner)
    with servers.connect() as cluster:  # its producer is another one
        assert cluster.log_state(log).high == 20
        count = 4 if lost in ("enough", "earliest") else 40
        cluster.append(log, numbers(0, *range(100, 100 + count)))
    run = ingest(job)
    assert run.code == 2
    assert "has lost rows that were read before offset 30" in run.message
    assert deltalake.DeltaTable(tmp_path / "out").version() == version


BEFORE = Path(__file__).parents[1] / "support" / "streams" / "table_of_log_tokens"
"""A table of which a stream had recorded 10 rows of the log "clicks" under the log's secret."""
SECRET = "0123456789abcdef0123456789abcdef"


def test_offsets_recorded_under_a_name_of_before_are_continued(
    servers: LogCluster, tmp_path: Path
) -> None:
    shutil.copytree(BEFORE, tmp_path / "out")
    job = write_job(servers, tmp_path, "clicks")
    live = tmp_path / "live.toml"
    live.write_text(job.read_text().replace("[stream]", "[stream]\nlive = true"))
    with servers.connect() as cluster:
        made = cluster.create_log("clicks", token=SECRET)
        cluster.append("clicks", numbers(0, *range(15)))
        tail = TailFile("pushed", cluster=servers.location, log=f"clicks:{SECRET}")
        write_tail_file(locate("out", tmp_path, {}), tail)
        for number in (15, 16):
            fresh = mrflight.read_table(tmp_path / "out", fresh=True, at_least={"clicks/0": number})
            assert sorted(fresh["n"].to_pylist()) == list(range(number))
            run = ingest(live)
            assert run.result["rows_in"] == (5 if number == 15 else 1), run.stderr
            cluster.append("clicks", numbers(0, number))
        name = f"log/clicks/{made.id}/0"
        table = deltalake.DeltaTable(tmp_path / "out")
        assert table.transaction_version(f"mrflight/pushed/{name}") == 16
        assert table.transaction_version(f"mrflight/pushed/log/clicks/{SECRET}/0") == 10
        later = [path.read_text() for path in (tmp_path / "out" / "_delta_log").glob("*[1-9].json")]
        assert len(later) == 2
        assert not [text for text in later if SECRET in text]
        assert sorted(rows(tmp_path)["n"].to_pylist()) == list(range(16))
        cluster.drop_log("clicks")
        cluster.create_log("clicks")
    assert "was dropped and made anew" in ingest(job).message


@pytest.mark.slow
def test_what_the_table_has_is_trimmed(
    servers: LogCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment stays until all of its rows are in the table."""
    from mrflight.config.identity import ClientOptions
    from mrflight.config.input_spec import InputSpec
    from mrflight.sources.log_source import LogInput

    monkeypatch.setattr(log_positions, "TRIM_EVERY_S", 0.0)
    with servers.connect() as cluster:
        cluster.create_log("trimmed")
        large = pa.record_batch({"n": pa.array(range(1 << 20))})
        for _ in range(20):
            cluster.append("trimmed", large)
        place = LogInput(servers.location, ClientOptions())
        positions = log_positions.LogPositions("rows", InputSpec(log="trimmed"), place)
        end = positions.ends()["trimmed", 0]
        assert end == 20 << 20
        positions.committed({positions.name(("trimmed", 0)): end})
        low = cluster.log_state("trimmed").low
        assert 0 < low <= end
        assert positions.check_kept({("trimmed", 0): low}, takes_earliest=False)
        assert positions.check_kept({("trimmed", 0): 0}, takes_earliest=True) == {
            ("trimmed", 0): low
        }
