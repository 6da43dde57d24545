"""Runs and jobs that write to one table at the same time, in every output format."""

from __future__ import annotations

import threading
from functools import partial

import pyarrow as pa
import pytest

from mrflight.errors import CommitError, OutputError
from mrflight.sinks.commit.base import Commit, Sink
from mrflight.sinks.commit.run_name import application_id
from tests.support.commands.threads import run_threads
from tests.support.suite.messages import refused
from tests.support.tables.commits import commit_and_cleanup
from tests.support.tables.outputs import (
    MODES,
    NEW,
    OLD,
    SCHEMA,
    Mode,
    Output,
    finish,
    written,
)


@pytest.mark.parametrize("mode", MODES)
def test_a_rerun_of_a_run_id_finds_it_committed(output: Output, mode: Mode) -> None:
    output.run(OLD, "append", job_id="old")
    output.run(NEW, "append", job_id="first", app_id="run 1")
    output.run([(9, "z")], "append", job_id="later")
    again = output.open(mode, "again", app_id="run 1")
    assert again.was_committed()
    assert again.committed_version() == (1 if output.format == "delta" else None)
    for other in (output.open("append", "next", app_id="run 2"), output.open("append", "next")):
        assert not other.was_committed()
        assert other.committed_version() is None


def test_runs_whose_names_make_the_same_text_are_others(output: Output) -> None:
    names = [("etl%2Feu", "1"), ("etl", "eu%2F1"), ("etl/eu", "1"), ("etl", "eu/1"), ("etl", "1")]
    for number, name in enumerate(names):
        output.run([(number, "r")], "append", f"job{number}", application_id(*name))
    assert [row[0] for row in output.read()] == list(range(len(names)))
    assert all(
        output.open("append", "again", application_id(*each)).was_committed() for each in names
    )


def test_a_run_that_an_earlier_version_may_have_committed_is_refused(output: Output) -> None:
    """Its id was that of job "etl/eu" and run "1", and of job "etl" and run "eu/1"."""
    output.run(OLD, "append", job_id="earlier", app_id="mrflight/etl/eu/1")
    for name in (("etl/eu", "1"), ("etl", "eu/1")):
        with refused(OutputError, "job.run_id"):
            output.open("append", app_id=application_id(*name))
    assert not output.open("append", app_id=application_id("etl/eu", "2")).was_committed()


def test_a_commit_does_nothing_if_another_job_of_the_run_has_committed(output: Output) -> None:
    sink = output.open("append", "slow", app_id="run 1")
    faster = output.open("append", "fast", app_id="run 1")
    parts = written(sink, NEW)
    finish(faster)
    output.run(OLD, "append", job_id="later")
    version = commit_and_cleanup(sink, Commit(tuple(parts), SCHEMA))
    assert version == (0 if output.format == "delta" else None)
    sink.abort()
    assert output.read() == OLD + NEW
    assert not output.parts("slow")


def test_error_refuses_a_table_that_was_created_meanwhile(output: Output) -> None:
    sink, faster = output.open("error", "slow"), output.open("error", "fast")
    parts = written(sink, NEW)
    finish(faster, OLD)
    with pytest.raises(OutputError, match="while the job ran"):
        commit_and_cleanup(sink, Commit(tuple(parts), SCHEMA))
    sink.abort()
    assert output.read() == OLD
    assert not output.parts("slow")


def test_append_refuses_a_table_whose_schema_changed_meanwhile(output: Output) -> None:
    output.run(OLD, job_id="old")
    sink, faster = output.open("append", "slow"), output.open("overwrite", "fast")
    parts = written(sink, NEW)
    schema = pa.schema([("n", pa.string()), ("k", pa.string())])
    finish(faster, [("x", "y")], schema)
    with refused(OutputError):
        commit_and_cleanup(sink, Commit(tuple(parts), SCHEMA))
    sink.abort()
    assert output.read(schema) == [("x", "y")]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("existing", [False, True], ids=["new", "existing"])
def test_an_overwrite_removes_no_rows_that_it_has_not_seen(
    output: Output, mode: Mode, existing: bool
) -> None:
    if existing:
        output.run(OLD, job_id="old")
    sink, faster = output.open("overwrite", "slow"), output.open(mode, "fast")
    parts = written(sink, NEW)
    finish(faster, [(9, "z")])
    with refused(CommitError):
        commit_and_cleanup(sink, Commit(tuple(parts), SCHEMA))
    sink.abort()
    assert output.read() == [*(OLD if existing and mode == "append" else []), (9, "z")]
    assert not output.parts("slow")


def test_of_jobs_that_overwrite_at_the_same_time_one_commits(output: Output) -> None:
    output.run(OLD, job_id="old")
    sinks = [output.open("overwrite", f"job{i}") for i in range(6)]
    commits = [Commit(tuple(written(sink, [(i, "a")])), SCHEMA) for i, sink in enumerate(sinks)]
    raised = together(sinks, commits)
    assert [type(error) for error in raised if error] == [CommitError] * 5
    assert output.read() == [(raised.index(None), "a")]


def test_parts_that_another_job_removed_are_not_committed(output: Output) -> None:
    sink = output.open()
    parts = written(sink, NEW)
    output.parts("new")[0].unlink()
    with refused(CommitError):
        commit_and_cleanup(sink, Commit(tuple(parts), SCHEMA))


@pytest.mark.parametrize("existing", [False, True], ids=["new", "existing"])
def test_jobs_that_append_at_the_same_time_all_commit(output: Output, existing: bool) -> None:
    if existing:
        output.run([], job_id="old")
    sinks = [output.open("append", f"job{i}") for i in range(6)]
    commits = [
        Commit(tuple(written(sink, [(i, "a"), (i + 100, "b")])), SCHEMA)
        for i, sink in enumerate(sinks)
    ]
    assert together(sinks, commits) == [None] * 6
    assert output.read() == sorted((i + j, k) for i in range(6) for j, k in ((0, "a"), (100, "b")))


@pytest.mark.parametrize("mode", MODES)
def test_of_jobs_with_one_run_id_one_commits(output: Output, mode: Mode) -> None:
    sinks = [output.open(mode, f"job{i}", app_id="run 1") for i in range(6)]
    commits = [Commit(tuple(written(sink, NEW)), SCHEMA) for sink in sinks]
    assert together(sinks, commits) == [None] * 6
    assert output.read() == NEW
    assert len(list(output.folder.rglob("part-*"))) == len(commits[0].parts)


def test_of_jobs_that_create_at_the_same_time_one_commits(output: Output) -> None:
    sinks = [output.open("error", f"job{i}") for i in range(6)]
    commits = [Commit(tuple(written(sink, [(i, "a")])), SCHEMA) for i, sink in enumerate(sinks)]
    raised = together(sinks, commits)
    assert [type(error) for error in raised if error] == [OutputError] * 5
    assert output.read() == [(raised.index(None), "a")]
    assert len(list(output.folder.rglob("part-*"))) == 1


def together(sinks: list[Sink], commits: list[Commit]) -> list[Exception | None]:
    """Commit all at the same time in threads, and return what each raised."""
    raised: list[Exception | None] = [None] * len(sinks)
    start = threading.Barrier(len(sinks))

    def commit(i: int) -> None:
        start.wait()
        try:
            commit_and_cleanup(sinks[i], commits[i])
        except Exception as error:
            raised[i] = error
        sinks[i].abort()

    run_threads(partial(commit, i) for i in range(len(sinks)))
    return raised
