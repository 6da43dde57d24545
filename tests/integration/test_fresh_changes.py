"""Fresh reads of a live stream that merges: each has the rows that its changes come to."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import deltalake
import pyarrow.compute as pc
import pytest

import mrflight
from mrflight.errors import InputError
from tests.services.kafka import Kafka
from tests.support.streams.changed_rows import REGISTERED
from tests.support.streams.fresh_changes import (
    INPUTS,
    NEVER,
    by_id,
    changed,
    live_changes,
    reading_changes,
    registry_file,
    seeded,
    stored,
    write_job,
)
from tests.support.streams.fresh_reads import (
    found_tail,
    fresh,
    kill_tail_server,
    kill_workers,
    live_stream,
    reading_plainly,
    tail_file,
)
from tests.support.streams.ingest_job import Stream, ended, ingest, numbered
from tests.support.streams.repeated_reads import await_reads
from tests.support.streams.schema_registry import schema_registry
from tests.support.suite.messages import refused
from tests.support.suite.waiting import await_that

PARTITIONS, IDS = 3, 40
QUERY = "select id, name, day, at, zoned, price, _op, _deleted, _offset from events"
MAPPED = ("plain json", f'sql = "{QUERY}"')
"""Rows of the tail without offsets: it can be cut only where its batches end."""


@pytest.fixture
def stream(kafka: Kafka, tmp_path: Path) -> Stream:
    return Stream(kafka, kafka.topic(PARTITIONS), tmp_path)


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with schema_registry(REGISTERED) as (url, _):
        yield url


@pytest.fixture(autouse=True)
def with_registry(registry: str, tmp_path: Path) -> None:
    registry_file(tmp_path).write_text(registry)


@pytest.mark.parametrize(("shape", "input"), [*((shape, "") for shape in INPUTS), MAPPED])
def test_every_read_is_the_table_of_the_database(stream: Stream, shape: str, input: str) -> None:
    changes = seeded(shape)
    changes.snapshot(range(0, IDS, 2))
    with (
        live_changes(stream, changes, input=input),
        reading_changes(stream, changes) as readers,
    ):
        for _ in range(60):
            changes.change(20, IDS)
            changes.send(stream)
        while deltalake.DeltaTable(stream.table).version() < 5:
            changes.change(20, IDS)
            changes.send(stream)
        await_reads(readers, 3)
        changed(stream, changes)
        await_that(lambda: stored(stream) == changes.expected(), "the commit of all changes")
        await_reads(readers, 2)
    assert by_id(fresh(stream)) == changes.expected()


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(1, marks=pytest.mark.slow),
        *(pytest.param(n, marks=pytest.mark.soak) for n in (2, 3)),
    ],
)
def test_no_change_is_lost_if_processes_are_killed(stream: Stream, seed: int) -> None:
    changes = seeded("plain json", seed)
    changes.snapshot(range(0, IDS, 2))
    chance = changes.random
    with (
        live_changes(stream, changes) as process,
        reading_changes(stream, changes) as readers,
    ):
        for _ in range(4):
            for _ in range(chance.randrange(5, 20)):
                changes.change(20, IDS)
                changes.send(stream)
            kill = chance.choice([kill_workers, kill_tail_server])
            sys.stdout.write(f"{kill.__name__}\n")
            kill(process, stream)
            changes.change(20, IDS)
            changes.send(stream)
            await_reads(readers, chance.randrange(1, 4))
        changed(stream, changes)
        await_that(lambda: stored(stream) == changes.expected(), "the commit of all changes")
    assert by_id(fresh(stream)) == changes.expected()


def test_changes_are_read_before_they_are_committed(stream: Stream) -> None:
    changes = seeded("plain json")
    changes.snapshot(range(10))
    with live_changes(stream, changes, commit=NEVER):
        committed, tokens = stored(stream), []

        def check() -> None:
            rows = changed(stream, changes)
            tokens.append((mrflight.fresh_token(fresh(stream)), rows))

        changes.put(1)
        check()
        changes.delete(2)
        check()
        changes.put(20)  # a key that only the tail has
        check()
        changes.put(20)
        changes.delete(20)
        check()
        changes.put(2)  # keys that come back
        changes.put(20)
        check()
        changes.move(3, 30)
        changes.move(30, 3)
        check()
        changes.delete(2)
        changes.mark_stream()
        check()
        deltalake.DeltaTable(stream.table).optimize.compact()
        check()
        assert stored(stream) == committed, "nothing is committed"
        for token, rows in tokens:
            again = fresh(stream, as_of=token)
            assert by_id(again) == rows
            assert mrflight.fresh_token(again) == token
        for id in list(changes.rows):
            changes.delete(id)
        assert changed(stream, changes) == []
    assert ingest(write_job(stream, changes.shape)).code == 0
    assert stored(stream) == []


def test_a_table_that_is_compacted_meanwhile_is_read_right(stream: Stream) -> None:
    changes = seeded("plain json")
    changes.snapshot(range(IDS))
    maintain = ("maintain", "--no-vacuum", stream.table)
    with (
        live_changes(stream, changes, stream='upkeep = "off"'),
        reading_changes(stream, changes) as readers,
    ):
        for _ in range(3):
            for _ in range(10):
                changes.change(20, IDS)
                changes.send(stream)
            run = ended(*maintain)
            assert run.code == 0, run.stderr
        await_reads(readers, 2)
        changed(stream, changes)
        await_that(lambda: stored(stream) == changes.expected(), "the commit of all changes")


def test_jobs_and_queries_read_what_is_not_committed(stream: Stream) -> None:
    changes = seeded("plain json")
    changes.snapshot(range(IDS))
    with live_changes(stream, changes, commit=NEVER):
        changes.change(200, IDS)
        changes.put(1)
        rows = changed(stream, changes)
        expected = {row["name"]: row["id"] for row in changes.expected()}
        job = stream.folder / "names.toml"
        job.write_text(
            '[job]\nname = "names"\n[inputs.events]\npath = "out/events"\nfresh = true\n'
            'columns = ["name"]\n[cluster]\nworkers = 2\n'
            '[reduce]\ngroup_by = ["name"]\naggregate = { n = "count(*)" }\n'
            '[output]\ntable = "out/names"\n'
        )
        mrflight.run(job, progress=False)
        names = mrflight.read_table(stream.folder / "out" / "names").to_pylist()
        counts = dict.fromkeys(expected, 0)
        for row in changes.expected():
            counts[row["name"]] += 1
        assert {row["name"]: row["n"] for row in names} == counts

        found = fresh(stream, columns=["name"], filter=mrflight.col("id") >= IDS // 2)
        upper = [row["name"] for row in changes.expected() if row["id"] >= IDS // 2]
        assert found.schema.names == ["name"]
        assert sorted(found["name"].to_pylist(), key=repr) == sorted(upper, key=repr)
        assert fresh(stream, columns=["price", "id"]).schema.names == ["price", "id"]
        dataset = mrflight.scan_table(stream.table, fresh=True)
        assert by_id(dataset.collect()) == rows
        query = "select count(*) as n, max(name) as name from events where id < 20"
        (row,) = mrflight.sql(query, events=dataset).collect().to_pylist()
        lower = [each for each in changes.expected() if each["id"] < 20]
        named = [each["name"] for each in lower if each["name"] is not None]
        assert row == {"n": len(lower), "name": max(named)}
        command = ["sql", "--format", "json", "--quiet"]
        for select in ("count(*)", "sum(case when id >= 0 then 1 else 0 end)"):
            text = f"select {select} as n from delta.'{stream.table}'"
            run = ended(*command, "--fresh", text)
            assert (run.code, run.stdout.strip()) == (0, f'{{"n":{len(rows)}}}'), run.stderr
        assert json.loads(ended(*command, text).stdout) == {"n": IDS}


def test_a_key_of_several_partitions_is_read_as_it_is_merged(stream: Stream) -> None:
    changes = seeded("plain json")
    changes.snapshot([1, 2])
    with live_changes(stream, changes, commit=NEVER):
        offsets = [changes.ends(stream).get(f"{stream.topic}/{n}", 0) for n in range(PARTITIONS)]
        first = max(range(PARTITIONS), key=offsets.__getitem__)
        for partition in (first, (first + 1) % PARTITIONS):
            changes.put(7)
            if partition == first:
                changes.put(7)
                changes.put(7)
                wins = changes.rows[7]
            changes.send(stream, partition)
        found = fresh(stream, at_least=changes.ends(stream))
        assert found.filter(pc.equal(found["id"], 7)).to_pylist() == [wins], "the greatest offset"
    assert ingest(write_job(stream, changes.shape)).code == 0
    assert stored(stream) == by_id(found), "as it is merged"


def test_what_a_merge_refuses_is_not_read(stream: Stream) -> None:
    changes = seeded("plain json")
    changes.snapshot([1])
    with live_changes(stream, changes, commit=NEVER, ends=2):
        row = {"id": None, "name": "x"}
        value = json.dumps({"op": "c", "before": None, "after": row, "source": {}, "ts_ms": 1})
        changes.messages.append((b"null", value.encode()))
        changes.send(stream)
        with refused(InputError):
            fresh(stream, at_least=changes.ends(stream))
    run = ingest(write_job(stream, changes.shape))
    assert (run.code, "'id' is null" in run.stderr) == (2, True), run.stderr
    assert by_id(fresh(stream)) == changes.expected(), "the table has what was committed"


UPSERTS = """
mode = "merge"
keys = ["producer"]
order_by = "_offset"
delete_when = "number % 10 = 9"
"""


def test_events_without_an_envelope_are_upserts(stream: Stream) -> None:
    with live_stream(stream, commit=NEVER, output=UPSERTS):
        assert len(fresh(stream)) == 0, "the last event of producer 0 deletes it"
        for number in range(25):
            stream.produce(numbered(1, [number]), partition=1)
            rows = fresh(stream, at_least={f"{stream.topic}/1": number + 1})
            texts = [] if number % 10 == 9 else [f"event {number}"]
            assert rows["text"].to_pylist() == texts
            assert {"number", "_mrflight_deleted"}.isdisjoint(rows.schema.names)


def test_a_plain_flight_client_takes_the_changes(stream: Stream) -> None:
    changes = seeded("plain json")
    changes.snapshot([1, 2, 3])
    with live_changes(stream, changes, commit=NEVER):
        changes.delete(1)
        changes.put(2)
        changes.put(4)
        changes.put(4)
        rows = changed(stream, changes)
        place = json.loads(tail_file(stream).read_text())
        assert place["merge"] == {"keys": ["id"], "order_by": "_offset"}
        table = deltalake.DeltaTable(stream.table)
        ends = json.loads(mrflight.fresh_token(fresh(stream)))["streams"]["events"]
        recorded = {name: table.transaction_version(f"mrflight/events/{name}") for name in ends}
        since = {name: offset for name, offset in recorded.items() if offset is not None}
        with reading_plainly(found_tail(stream), place["tail"], since) as reader:
            found = reader.read_all().sort_by("_offset").to_pylist()
        last = {row["id"]: row for row in found}  # of several, the greatest _offset
        columns = table.to_pyarrow_table()
        merged = {row["id"]: row for row in columns.to_pylist() if row["id"] not in last}
        merged |= {
            id: {name: row[name] for name in columns.schema.names}
            for id, row in last.items()
            if not row["_mrflight_deleted"]
        }
        assert [merged[id] for id in sorted(merged)] == rows
