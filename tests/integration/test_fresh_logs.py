"""Fresh reads have the rows of an event log as soon as they are acknowledged, each of them once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mrflight
from mrflight.errors import InputError, TailBehindError, TailError
from mrflight.sources.fresh_rows import FreshRead, read_fresh
from mrflight.storage import locate
from tests.support.clusters.event_logs import PATIENT, LogCluster, log_cluster, numbers
from tests.support.streams.fresh_logs import (
    PushedStream,
    check_numbers,
    live_log,
    reading_log,
)
from tests.support.streams.ingest_job import ended, ingest, ingesting
from tests.support.streams.repeated_reads import await_reads
from tests.support.suite.waiting import await_that

DOUBLE = """
import pyarrow.compute as pc


def double(batch):
    return batch.set_column(1, "n", pc.multiply(batch["n"], 2))
"""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogCluster]:
    with log_cluster(
        tmp_path_factory.mktemp("logs"), data_servers=2, heartbeat_timeout=PATIENT
    ) as started:
        yield started


@pytest.fixture
def stream(servers: LogCluster, tmp_path: Path, request: pytest.FixtureRequest) -> PushedStream:
    return PushedStream(servers, f"log{abs(hash(request.node.name))}", tmp_path)


@pytest.mark.slow
def test_rows_are_read_once_they_are_acknowledged(stream: PushedStream) -> None:
    with live_log(stream), stream.servers.connect() as cluster:
        for number in range(20):
            appended = cluster.append(stream.log, numbers(1, number))
            at_least = {f"{stream.log}/0": appended.stop}
            rows = stream.fresh(at_least=at_least, wait=0)
            assert check_numbers(rows, {}) == {0: 10, 1: number + 1}
        assert len(mrflight.read_table(stream.table)) == 10, "nothing more is committed"
        columns = stream.fresh(columns=["n"], filter=mrflight.col("producer") == 1)
        assert columns.sort_by("n").to_pydict() == {"n": list(range(20))}
        with pytest.raises(TailBehindError, match="offset 30 is reached, and 31 was asked for"):
            stream.fresh(at_least={f"{stream.log}/0": 31}, wait=0.1)


def test_a_log_is_read_without_its_stream(stream: PushedStream) -> None:
    with stream.servers.connect() as cluster:
        with live_log(stream) as process:
            cluster.append(stream.log, numbers(1, 0, 1))
            process.kill()
            process.wait()
        cluster.append(stream.log, numbers(1, 2))
        assert check_numbers(stream.fresh(), {}) == {0: 10, 1: 3}
        assert ingest(stream.write_job(stream="live = true")).code == 0
        assert len(mrflight.read_table(stream.table)) == 13
        cluster.append(stream.log, numbers(1, 3))
        assert check_numbers(stream.fresh(), {}) == {0: 10, 1: 4}
        assert ingest(stream.write_job()).result["rows_in"] == 1
        assert not stream.tail_file.exists(), "the stream is not live any more"
        cluster.append(stream.log, numbers(1, 4))
        assert check_numbers(stream.fresh(), {}) == {0: 10, 1: 4}


def test_a_log_that_has_gone_back_is_behind_its_table(stream: PushedStream) -> None:
    with live_log(stream):
        pass
    with stream.servers.connect() as cluster:
        owner = stream.servers.owner(stream.log)
        cluster.append(stream.log, numbers(1, 0))
        assert ingest(stream.write_job(stream="live = true")).code == 0
        stream.servers.kill_data(owner)
        (segment,) = stream.servers.log_dir(owner).glob(f"{stream.log}:*/*.segment")
        segment.write_bytes(segment.read_bytes()[:-20])
        stream.servers.restart_data(owner)
        assert cluster.log_state(stream.log).high == 10
    for columns in (None, ["n"]):
        with pytest.raises(TailBehindError, match="offset 10 is reached, and 11 was asked for"):
            stream.fresh(columns=columns, wait=0.1)
    with stream.servers.connect() as cluster:
        cluster.append(stream.log, numbers(2, *range(10)))
    for is_planned in (False, True):  # a job only counts the rows at first
        wanted = FreshRead(wait_s=0.1, is_planned=is_planned)
        with pytest.raises(TailBehindError, match="has lost rows that the table has, before"):
            read_fresh(locate("out", stream.folder, {}), wanted)


def test_changes_of_a_log_are_merged(stream: PushedStream) -> None:
    lines = ('mode = "merge"', 'keys = ["producer"]', 'order_by = "n"', 'delete_when = "n = 25"')
    first, rows = {0: 9}, {0: 20, 1: 4}

    def found(table: pa.Table) -> dict[int, int]:
        return dict(zip(table["producer"].to_pylist(), table["n"].to_pylist(), strict=True))

    with live_log(stream, output="\n".join(lines)), stream.servers.connect() as cluster:
        assert found(stream.fresh()) == first
        cluster.append(stream.log, numbers(1, 4, 3))
        cluster.append(stream.log, numbers(2, 7))
        cluster.append(stream.log, numbers(0, 20))
        end = cluster.append(stream.log, numbers(2, 25)).stop
        assert found(stream.fresh(at_least={f"{stream.log}/0": end})) == rows
        assert found(mrflight.read_table(stream.table)) == first, "nothing more is committed"
    assert found(mrflight.read_table(stream.table)) == rows


def test_a_log_that_was_dropped_is_told(stream: PushedStream) -> None:
    with live_log(stream):
        pass
    with stream.servers.connect() as cluster:
        cluster.drop_log(stream.log)
    with pytest.raises(TailError, match=r"the event log of the stream is gone from.*without fresh"):
        stream.fresh(wait=0.2)
    assert len(mrflight.read_table(stream.table)) == 10


@pytest.mark.slow
def test_readers_see_each_row_once_while_batches_commit(stream: PushedStream) -> None:
    with (
        live_log(stream, "100 ms"),
        reading_log(stream) as readers,
        stream.servers.connect() as cluster,
    ):
        tokens, number = [], 0
        while number < 300 or deltalake.DeltaTable(stream.table).version() <= 3:
            cluster.append(stream.log, numbers(1, number))
            if number % 30 == 0:
                rows = stream.fresh()
                tokens.append((mrflight.fresh_token(rows), rows))
            number += 1
        assert check_numbers(stream.fresh(), {}) == {0: 10, 1: number}
        for token, rows in tokens:
            check_numbers(stream.fresh(at_least=token), check_numbers(rows, {}))
            again = stream.fresh(as_of=token)
            order = [("producer", "ascending"), ("n", "ascending")]
            assert again.sort_by(order).to_pydict() == rows.sort_by(order).to_pydict()
            assert mrflight.fresh_token(again) == token
        await_that(
            lambda: deltalake.DeltaTable(stream.table).to_pyarrow_table().num_rows == 10 + number,
            "the commit of all rows",
        )
        await_reads(readers, 2)


@pytest.mark.slow
def test_jobs_and_queries_read_the_log(stream: PushedStream) -> None:
    with live_log(stream), stream.servers.connect() as cluster:
        cluster.append(stream.log, numbers(1, *range(500)))
        job = stream.folder / "counts.toml"
        job.write_text(
            '[job]\nname = "counts"\n[inputs.events]\npath = "out"\nfresh = true\n'
            "[cluster]\nworkers = 2\n"
            '[reduce]\ngroup_by = ["producer"]\naggregate = { n = "count(*)" }\n'
            '[output]\ntable = "counts"\n'
        )
        result = mrflight.run(job, progress=False)
        assert result.rows_in == 510
        counts = mrflight.read_table(stream.folder / "counts").to_pylist()
        assert {row["producer"]: row["n"] for row in counts} == {0: 10, 1: 500}
        command = ["sql", "--format", "json", "--quiet"]
        select = f"select count(*) as n from delta.'{stream.table}'"
        run = ended(*command, "--fresh", select)
        assert (run.code, run.stdout.strip()) == (0, '{"n":510}'), run.stderr


@pytest.mark.slow
def test_a_large_log_is_read_by_many_tasks(stream: PushedStream) -> None:
    """The rows of a job stay in the log, also if the table has them and it is trimmed."""
    large = pa.record_batch({"producer": pa.array([1] * (1 << 20)), "n": range(1 << 20)})
    with live_log(stream), stream.servers.connect() as cluster:
        for _ in range(6):
            cluster.append(stream.log, large)
        rows = mrflight.scan_table(stream.table, fresh=True)
        total = 10 + (6 << 20)
        assert rows.group_by("producer").agg(n="count(*)").collect().sort_by("n").to_pydict() == {
            "producer": [0, 1],
            "n": [10, total - 10],
        }
        assert cluster.trim(stream.log, total) == 0, "the job has pinned the rows"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("input", "factor", "share"),
    [('map = "rows_map:double"', 2, 1), ('sql = "select * from rows where n % 2 = 0"', 1, 2)],
)
def test_rows_are_mapped_as_those_of_the_table(
    stream: PushedStream, input: str, factor: int, share: int
) -> None:
    (stream.folder / "rows_map.py").write_text(DOUBLE)
    with live_log(stream, "200 ms", input=input), stream.servers.connect() as cluster:
        for start in range(0, 400, 20):
            end = cluster.append(stream.log, numbers(1, *range(start, start + 20))).stop
            rows = stream.fresh(at_least={f"{stream.log}/0": end})
            found = sorted(rows.filter(pc.equal(rows["producer"], 1))["n"].to_pylist())
            step = factor * share
            assert found == list(range(0, (start + 20) * factor, step))


def test_other_rows_of_a_stream_are_read_with_its_columns(stream: PushedStream) -> None:
    with live_log(stream, input='columns = ["n"]'), stream.servers.connect() as cluster:
        cluster.append(stream.log, numbers(1, 10, 11))
        rows = stream.fresh()
        assert sorted(rows["n"].to_pylist()) == list(range(12))
        assert rows.schema.names == ["n"]


@pytest.mark.slow
def test_the_owner_is_killed_while_rows_are_read(tmp_path: Path) -> None:
    with log_cluster(tmp_path, data_servers=3) as servers:
        stream = PushedStream(servers, "owned", tmp_path)
        with (
            live_log(stream, "200 ms", replicas=2),
            reading_log(stream) as readers,
            servers.connect() as cluster,
        ):
            number = 0
            for _ in range(3):
                for _ in range(30):
                    cluster.append(stream.log, numbers(1, number))
                    number += 1
                owner = servers.owner(stream.log)
                servers.kill_data(owner)
                cluster.append(stream.log, numbers(1, number))
                number += 1
                rows = stream.fresh()
                assert check_numbers(rows, {}) == {0: 10, 1: number}, "all that was acknowledged"
                servers.restart_data(owner)
                await_reads(readers, 2)
            await_that(
                lambda: (
                    deltalake.DeltaTable(stream.table).to_pyarrow_table().num_rows == 10 + number
                ),
                "the commit of all rows",
            )
        assert check_numbers(stream.fresh(), {}) == {0: 10, 1: number}


@pytest.mark.slow
def test_a_token_of_rows_that_were_trimmed_is_refused(stream: PushedStream) -> None:
    large = pa.record_batch({"producer": pa.array([1] * (1 << 20)), "n": range(1 << 20)})
    with live_log(stream), stream.servers.connect() as cluster:
        for _ in range(6):
            cluster.append(stream.log, large)
        token = mrflight.fresh_token(stream.fresh(columns=["n"]))
    assert ingest(stream.write_job(stream="live = true")).code == 0
    assert len(mrflight.read_table(stream.table, columns=["n"])) == 10 + (6 << 20)
    with stream.servers.connect() as cluster:
        assert cluster.trim(stream.log, 10 + (6 << 20)) > 0
    with pytest.raises(InputError, match="what was read then is not kept any more"):
        stream.fresh(as_of=token, wait=0.5)


def test_a_stream_that_goes_on_stays_live(stream: PushedStream) -> None:
    with live_log(stream):
        pass
    job = stream.write_job("100 ms", stream="live = true")
    with stream.servers.connect() as cluster, ingesting(job) as process:
        cluster.append(stream.log, numbers(1, *range(5)))
        assert check_numbers(stream.fresh(), {}) == {0: 10, 1: 5}
        process.send_signal(signal.SIGTERM)
        process.communicate()


@pytest.mark.slow
def test_a_log_is_live_while_its_batches_run_on_ray(stream: PushedStream) -> None:
    pytest.importorskip("ray")
    with (
        live_log(stream, cluster='executor = "ray"'),
        stream.servers.connect() as cluster,
    ):
        end = cluster.append(stream.log, numbers(1, *range(5))).stop
        rows = stream.fresh(at_least={f"{stream.log}/0": end}, wait=0)
        assert check_numbers(rows, {}) == {0: 10, 1: 5}
