"""The processes with DuckDB that lakes use one after the other, and that no refusal leaves."""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from mrflight.config.input_spec import InputSpec
from mrflight.config.output_section import OutputSection
from mrflight.errors import MrflightError
from mrflight.sinks import open_sink
from mrflight.sinks.delta.maintenance import MaintenanceOptions
from mrflight.sinks.ducklake.maintenance import maintain
from mrflight.sinks.ducklake.named_files import LakeFiles
from mrflight.sources import open_source
from mrflight.storage.ducklake import child
from mrflight.storage.ducklake.address import parse_address
from mrflight.storage.ducklake.lake import Lake
from mrflight.storage.ducklake.process import LakeError, LakeProcessLostError
from mrflight.storage.ducklake.process_pool import borrowed_process, end_idle_processes
from mrflight.streams.catalog_stream_tables import LakeStreamTable
from tests.support.tables.ducklakes import DuckLake
from tests.support.tables.outputs import NEW, OLD

OTHERS = pa.schema([("k", pa.list_(pa.int64()))])
"""A schema that the table of a test cannot take."""

LEFT_OF_A_LAKE = (
    "SELECT database_name FROM duckdb_databases() WHERE NOT internal AND database_name <> 'memory' "
    "UNION ALL SELECT name FROM duckdb_secrets()"
)


def children() -> list[int]:
    """The processes with DuckDB of this process."""
    found = []
    for each in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # that is, a zombie, such as a lost one
            if child.__file__ in each.cmdline():
                found.append(each.pid)
    return found


@pytest.fixture
def written(own_ducklake: DuckLake) -> DuckLake:
    """A lake whose table has rows, and no process of it."""
    own_ducklake.run(OLD)
    end_idle_processes()
    assert not children()
    return own_ducklake


REFUSED: dict[str, dict[str, Any]] = {
    "another folder than the lake has": {"data_path": "other"},
    "a table that exists": {"mode": "error"},
    "other partitions": {"partition_by": ["k"]},
    "not the name of a table": {"table": "a.b.c"},
    "a catalog that is no lake": {"catalog": "sqlite:///in.txt"},
    "a lake that is not there": {"catalog": "sqlite:///none.sqlite", "data_path": None},
    "a server that is not there": {"catalog": "postgresql://nobody@127.0.0.1:1/lake"},
    "a folder that is a file": {"table": "sales.file"},
}


@pytest.mark.slow
def test_refusals_leave_one_process(written: DuckLake) -> None:
    (written.base / "in.txt").write_text("not a database, but long enough to look like a file")
    (written.base / "data" / "sales" / "file").write_text("in the way")
    for what, keys in REFUSED.items():
        section = {"table": written.table, "format": "ducklake", "mode": "append"}
        section |= {"catalog": written.catalog, **keys}
        with pytest.raises(MrflightError):
            open_sink(OutputSection(**section), written.base, {}, "job", None)
        assert len(children()) <= 1, what


@pytest.mark.slow
def test_nothing_that_opens_a_lake_leaves_more_than_one_process(
    written: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(written.base)
    missing = InputSpec(path="none", format="ducklake", catalog=written.catalog)
    url = written.catalog

    def of_stream() -> None:
        table = LakeStreamTable.open(written.section(), written.base, {})
        assert table is not None
        assert table.offsets("none") == {}

    calls = {
        "a source": lambda: open_source("x", missing, written.base, {}, 1 << 20),
        "maintain": lambda: maintain("none", url, {}, MaintenanceOptions()),
        "clean": lambda: LakeFiles.of(written.table, url, written.base, {}).names(),
        "a stream's table": of_stream,
        "upkeep": lambda: written.open(job_id="c").compact_small_files(2),
        "expiry": lambda: written.open(job_id="e").remove_old_files(),
        "rows that do not fit": lambda: written.open(job_id="r").check_rows(OTHERS),
    }
    refused = set()
    for what, call in calls.items():
        try:
            call()
        except MrflightError:
            refused.add(what)
        assert len(children()) == 1, what
    assert refused == {"a source", "maintain", "rows that do not fit"}


def test_lakes_use_one_process_after_the_other(written: DuckLake) -> None:
    written.run(NEW, job_id="next")
    (first,) = children()
    written.run(NEW, job_id="last")
    assert children() == [first]
    assert written.read() == sorted([*OLD, *NEW, *NEW], key=lambda row: row[0])


def test_sessions_that_overlap_have_a_process_each(ducklake_python: Path) -> None:
    python = str(ducklake_python)
    with borrowed_process(python) as one, borrowed_process(python) as other:
        assert one.pid != other.pid
        assert (one.run("SELECT 1"), other.run("SELECT 2")) == ([[1]], [[2]])
    assert children() == [other.pid]


def test_a_process_that_was_lost_is_replaced(written: DuckLake) -> None:
    sink = written.open(job_id="next")
    (lost,) = children()
    psutil.Process(lost).kill()
    assert written.open(job_id="other").recorded_offsets("none") == {}
    (new,) = children()
    assert new != lost
    sink.abort()
    with Lake(parse_address(written.catalog, written.base, "c"), {}).session() as session:
        psutil.Process(new).kill()
        with pytest.raises(LakeProcessLostError):
            session.rows("SELECT 1")
    assert not children()


@pytest.mark.slow
def test_nothing_of_a_lake_is_left_for_the_next(written: DuckLake, ducklake_python: Path) -> None:
    """Whether its session ends well, by an error, or within a transaction."""
    lake = Lake(parse_address(written.catalog, written.base, "c"), {})

    def fail(*before: str) -> None:
        with lake.session() as session, session.transaction(session.data_path):
            for statement in before:
                session.rows(statement)
            session.rows("FROM no_such_table")

    for statement in ("SELECT 1", "CREATE SECRET mrflight (TYPE http, BEARER_TOKEN 'x')"):
        with pytest.raises(LakeError, match="no_such_table"):
            fail(statement)
    (pid,) = children()
    with borrowed_process(str(ducklake_python)) as process:
        assert process.pid == pid
        assert process.run(LEFT_OF_A_LAKE) == []
        process.run("BEGIN")
        process.run("ROLLBACK")


@pytest.mark.slow
def test_a_fork_uses_no_process_of_its_parent(written: DuckLake, ducklake_python: Path) -> None:
    assert written.open(job_id="look").recorded_offsets("none") == {}
    (of_parent,) = children()
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        code = 1
        try:
            gc.freeze()  # what other tests have left of gRPC must not be collected here
            with borrowed_process(str(ducklake_python)) as process:
                os.write(write, f"{process.pid} {process.run('SELECT 42')[0][0]}".encode())
            end_idle_processes()
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    with open(read) as answers:
        of_fork, answer = answers.read().split()
    assert answer == "42"
    assert int(of_fork) != of_parent
    assert written.open(job_id="again").recorded_offsets("none") == {}
    assert children() == [of_parent]


@pytest.mark.smoke
def test_a_lake_is_written_and_read(own_ducklake: DuckLake) -> None:
    """One case for whoever has no other test of DuckLake."""
    own_ducklake.run(OLD, partition_by=["k"])
    spec = InputSpec(path=own_ducklake.table, format="ducklake", catalog=own_ducklake.catalog)
    assert open_source("x", spec, own_ducklake.base, {}, 1 << 20).rows == len(OLD)
    assert own_ducklake.read() == OLD
