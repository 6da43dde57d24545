"""Servers and streams are killed while a log is read fresh: no acknowledged row is missed."""

from __future__ import annotations

import random
from pathlib import Path

import deltalake
import pytest

from mrflight.sources.fresh_rows import FreshRead, read_fresh
from mrflight.sources.fresh_source import TailSplit
from mrflight.storage import locate
from tests.support.clusters.event_logs import Producers, check_rows, held, log_cluster, numbers
from tests.support.streams.fresh_logs import PushedStream, live_log, reading_log
from tests.support.streams.ingest_job import ingest, ingesting
from tests.support.streams.repeated_reads import await_reads
from tests.support.suite.waiting import await_that, hang_s

VICTIMS = ("owner", "stream", "metadata", "replica")
FIRST = 10
"""The rows of the table's first version."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 20))]
)
def test_a_process_is_killed_while_rows_are_read(seed: int, tmp_path: Path) -> None:
    chosen = random.Random(seed)
    with log_cluster(tmp_path, data_servers=3) as servers, servers.connect() as cluster:
        stream = PushedStream(servers, "events", tmp_path)
        with live_log(stream, replicas=2, first=9):
            pass
        job = stream.write_job("200 ms", stream="live = true")
        with ingesting(job) as process, reading_log(stream) as readers:
            producers = Producers(servers.location, "events", 4)
            try:
                for number in range(3):
                    await_reads(readers, 1)
                    victim = VICTIMS[(seed + number) % len(VICTIMS)]
                    if victim == "metadata":
                        servers.restart_metadata()
                    elif victim == "stream":
                        process.kill()
                    else:
                        owner = servers.owner("events")
                        members = servers.members("events")
                        others = [each for each in members if each != owner]
                        place = chosen.choice(others) if others and victim == "replica" else owner
                        servers.kill_data(place)
                        _await_rows(producers, 1)
                        servers.restart_data(place)
                    _await_rows(producers, 100)
                    acknowledged = {who: len(rows) for who, rows in producers.acknowledged.items()}
                    rows = stream.fresh(wait=hang_s()).to_pylist()
                    for who, count in acknowledged.items():
                        mine = sum(row["producer"] == who for row in rows)
                        assert mine >= count, "what was acknowledged"
                    await_reads(readers, 1)
            finally:
                producers.stop()
            process.kill()
        assert not producers.errors
        check_rows(held(cluster, "events"), producers)
        rows = stream.fresh(wait=hang_s())
        total = FIRST + producers.count()
        assert len(rows) == total
        assert ingest(stream.write_job(stream="live = true")).code == 0
        assert deltalake.DeltaTable(stream.table).to_pyarrow_table().num_rows == total


def _await_rows(producers: Producers, more: int) -> None:
    goal = producers.count() + more
    await_that(lambda: producers.count() >= goal, "more rows are acknowledged")


@pytest.mark.slow
def test_a_task_of_a_job_reads_its_rows_from_the_next_owner(tmp_path: Path) -> None:
    with log_cluster(tmp_path, data_servers=2) as servers, servers.connect() as cluster:
        stream = PushedStream(servers, "events", tmp_path)
        with live_log(stream, replicas=2):
            pass
        cluster.append("events", numbers(1, *range(50)))
        found = read_fresh(locate(str(stream.table), tmp_path), FreshRead(is_planned=True))
        schema = stream.fresh().schema
        split = TailSplit.of(found.tails[0], number=0, size_bytes=400)
        pieces = [piece for piece in split.divide(4) if isinstance(piece, TailSplit)]
        first = [row for batch in pieces[0].rows(schema) for row in batch["n"].to_pylist()]
        servers.kill_data(servers.owner("events"))
        rest = [
            row
            for piece in pieces[1:]
            for batch in piece.rows(schema)
            for row in batch["n"].to_pylist()
        ]
        assert (len(pieces), first + rest) == (4, list(range(50)))
