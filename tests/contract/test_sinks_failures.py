"""Attempts and commits that fail leave nothing behind, in every output format."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from mrflight.errors import MrflightError
from mrflight.sinks.commit.base import Commit
from mrflight.storage.part_name import PartId
from tests.support.commands.leftovers import tree
from tests.support.tables.commits import commit_and_cleanup
from tests.support.tables.outputs import NEW, OLD, SCHEMA, Mode, Output, table_of, written


class BoomError(Exception):
    pass


@pytest.mark.every_format
@pytest.mark.parametrize("existing", [False, True], ids=["new", "existing"])
def test_batches_that_fail_half_way_leave_nothing(output: Output, existing: bool) -> None:
    if existing:
        output.run(OLD, job_id="old")
    before = tree(output.base)
    sink = output.open("append")

    def batches() -> Iterator[pa.RecordBatch]:
        yield from table_of(NEW * 50_000).to_batches(max_chunksize=10_000)
        raise BoomError

    with pytest.raises(BoomError):
        sink.part_writer.write(PartId(0, 0), SCHEMA, batches())
    sink.abort()
    assert tree(output.base) == before


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_abort_leaves_the_old_table_byte_for_byte(output: Output, mode: Mode) -> None:
    output.run(OLD, job_id="old")
    output.run(OLD, "append", job_id="new-er")  # its name begins with that of the job
    before = tree(output.base)
    sink = output.open(mode)
    written(sink, NEW)
    written(sink, [*NEW, (8, "only here")], attempt=1)
    assert tree(output.base) != before
    sink.abort()
    assert tree(output.base) == before
    sink.abort()  # twice is fine


def test_abort_of_a_new_table_leaves_nothing(output: Output) -> None:
    sink = output.open()
    written(sink, NEW)
    sink.abort()
    assert tree(output.base) == {}


def test_abort_leaves_folders_and_files_of_others(output: Output) -> None:
    (output.folder / "k=a").mkdir(parents=True)
    sink = output.open("append")
    written(sink, NEW)
    (output.folder / "k=b").mkdir(exist_ok=True)
    (output.folder / "k=b" / "part-00000-0-other.parquet").write_bytes(b"another job's")
    sink.abort()
    left = {"out", "out/table", "out/table/k=a", "out/table/k=b"}
    assert set(tree(output.base)) == left | {"out/table/k=b/part-00000-0-other.parquet"}


def test_files_of_stale_attempts_are_deleted_after_the_commit(output: Output) -> None:
    output.run(OLD, job_id="old")
    sink = output.open("append")
    winners = written(sink, NEW)
    written(sink, [*NEW, (8, "only here")], attempt=1)
    commit_and_cleanup(sink, Commit(tuple(winners), SCHEMA))
    assert output.read() == OLD + NEW
    assert {str(p.relative_to(output.folder)) for p in output.parts("new")} == {
        part.path for part in winners
    }
    assert not (output.folder / "k=only%20here").exists()


def test_abort_after_a_commit_does_nothing(output: Output) -> None:
    sink = output.open()
    commit_and_cleanup(sink, Commit(tuple(written(sink, NEW)), SCHEMA))
    before = tree(output.base)
    sink.abort()
    assert tree(output.base) == before


def test_abort_of_another_sink_of_the_job_keeps_committed_files(output: Output) -> None:
    """This is the state after a commit whose answer was lost."""
    late = output.open()
    output.run(NEW)
    before = tree(output.base)
    late.abort()
    assert tree(output.base) == before


@pytest.mark.slow
def test_a_commit_that_the_store_refuses(output: Output) -> None:
    sink = output.open()
    parts = written(sink, NEW)
    log = output.folder / ("_delta_log" if output.format == "delta" else "_mrflight")
    log.write_text("in the way of the log")
    with pytest.raises(MrflightError):
        commit_and_cleanup(sink, Commit(tuple(parts), SCHEMA))
    assert len(output.parts("new")) == len(parts)
