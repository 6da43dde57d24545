"""The history that a job writes: whole, exact, and the same as its result."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

import msgspec
import pytest

import mrflight
from mrflight.config.identity import ClientOptions
from mrflight.events.history import read_history, read_view
from mrflight.events.job_view import JobView, fold
from mrflight.events.kinds import (
    AttemptEnded,
    Incident,
    JobBegan,
    JobEnded,
    PartitionsWritten,
    ProcessesSampled,
)
from mrflight.events.profile import profile
from mrflight.events.recorder import Recorder
from mrflight.events.task_report import server_name
from mrflight.result import JobResult
from mrflight.scheduler.server_samples import ServerSamples
from tests.support.clusters.cluster import server_process, standing_cluster
from tests.support.commands.driver import DriverRun, drive, write_job
from tests.support.faults import faulty_job
from tests.support.faults.faulty_run import faulty_run, kill
from tests.support.faults.gated_job import GatedJob, gated_job
from tests.support.suite.waiting import await_end, await_that

FILES, ROWS, PARTITIONS = 3, 1000, 4
MARKUP = "<img src=x onerror=alert(1)>"
SECRET = "p1anted-s3cret"

JOB = f"""
[job]
name = "{MARKUP}"
speculation = false
events = "history"
[inputs.rows]
path = "in/*.csv"
map = "functions:FUNCTION"
key = ["k"]
[shuffle]
partitions = {PARTITIONS}
[output]
table = "out"
format = "parquet"
[cluster]
workers = 2
data_servers = 2
"""

FUNCTIONS = """
import logging
import os
import signal
import time
from pathlib import Path

import pyarrow as pa

FOLDER = Path(__file__).parent

def keep(batch):
    return batch

def wait_for_samples(batch):  # which are in the history from a process's first second on
    (history,) = (FOLDER / "history").iterdir()
    while b"data1" not in history.read_bytes():
        time.sleep(0.02)
    return batch

def die_once(batch):
    try:
        (FOLDER / "died").touch(exist_ok=False)
    except FileExistsError:
        return batch
    os.kill(os.getpid(), signal.SIGKILL)

def warn(batch):
    logging.getLogger("functions").warning("careful")
    return batch

def swell(batch):
    filler = pa.array([os.urandom(2000) for _ in range(batch.num_rows)])
    return batch.append_column("filler", filler)

def fail(batch):
    raise RuntimeError("no such luck")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        lines = (f"{number * ROWS + row},{row % 7}" for row in range(ROWS))
        (tmp_path / "in" / f"{number}.csv").write_text("\n".join(["k,v", *lines, ""]))
    return tmp_path


def run(folder: Path, function: str = "keep", *options: str) -> tuple[DriverRun, JobView]:
    """Run the job, and return the state at the end of its history."""
    done = drive(write_job(folder, JOB.replace("FUNCTION", function)), *options)
    return done, read_view(history_of(folder))


def history_of(folder: Path) -> Path:
    (path,) = (folder / "history").iterdir()
    return path


def test_the_numbers_are_those_of_the_result(folder: Path) -> None:
    done, view = run(folder)
    assert done.code == 0, done.stderr
    result = msgspec.convert(done.result, JobResult)
    assert view.result == result
    assert history_of(folder).stem == result.job_id
    stages = {stage.name: stage for stage in view.stages.values()}
    assert stages.keys() >= {"map", "reduce", "commit"}
    maps, reduces = stages["map"], stages["reduce"]
    assert (maps.tasks, maps.done, maps.rows) == (FILES, FILES, result.rows_in)
    assert (reduces.rows, reduces.attempts) == (result.rows_out, result.attempts.reduce)
    assert maps.sent_bytes == reduces.fetched_bytes == result.bytes_shuffled
    assert maps.partitions is not None
    assert sum(maps.partitions.size_bytes) == result.bytes_shuffled
    assert sum(maps.partitions.rows) == FILES * ROWS
    assert len(maps.partitions.rows) == result.partitions == PARTITIONS
    assert maps.size_bytes == sum(path.stat().st_size for path in (folder / "in").iterdir())
    assert set(view.sent) <= {"worker0", "worker1"}
    assert {server for row in view.sent.values() for server in row} == {"data0", "data1"}
    assert view.workers["driver"].attempts == 1
    assert profile(view) == result.profile
    (first, last) = result.profile.stages
    assert (first.name, first.tasks, first.rows) == ("map", FILES, result.rows_in)
    assert (last.name, last.fetched_bytes) == ("reduce", result.bytes_shuffled)
    assert all(line in done.stderr for line in result.profile.lines())


def test_a_history_tells_who_ran_and_how_much_memory_they_took(folder: Path) -> None:
    _, view = run(folder, "wait_for_samples")
    began = view.began
    assert began is not None
    assert (began.name, began.workers, began.data_servers) == (MARKUP, 2, 2)
    assert [(each.name, each.files) for each in view.inputs] == [("rows", FILES)]
    assert view.table == str(folder / "out")
    assert view.processes.keys() >= {"driver", "fork server", "metadata", "data0", "data1"}
    assert all(each.peak_memory_bytes > 0 for each in view.processes.values())
    attempts = [each for each in read_history(history_of(folder)) if type(each) is AttemptEnded]
    assert all(each.seconds > 0 for each in attempts)
    assert all(each.memory_bytes > 0 for each in attempts if each.worker != "driver")


def test_a_stage_that_spilled_is_named_in_the_summary(folder: Path) -> None:
    """What maps send is several times what the servers may hold."""
    options = ("shuffle.memory=1 MiB", "inputs.rows.map=functions:swell")
    done, view = run(folder, "keep", *(part for each in options for part in ("--set", each)))
    assert done.code == 0, done.stderr
    (finding,) = [each for each in view.result.profile.findings if each.kind == "spilled"]  # type: ignore[union-attr]
    assert finding.setting == "cluster.memory"
    assert f"note: {finding.message}" in done.stderr
    maps = next(stage for stage in view.stages.values() if stage.name == "map")
    assert maps.spilled_bytes > maps.sent_bytes - 2**20 > 2**21


def test_a_killed_worker_is_an_incident_with_its_cause_and_what_was_done(folder: Path) -> None:
    done, view = run(folder, "die_once")
    assert done.code == 0, done.stderr
    (incident,) = view.incidents
    assert incident.kind == "worker_lost"
    assert incident.subject in {"worker0", "worker1"}
    assert "it was killed from outside" in incident.cause
    assert incident.action.endswith("is retried")
    assert incident.message in done.stderr
    maps = next(stage for stage in view.stages.values() if stage.name == "map")
    assert (maps.outcomes, maps.retried) == ({"done": FILES, "failed": 1}, 1)
    failed = [e for e in read_history(history_of(folder)) if getattr(e, "outcome", "") == "failed"]
    assert [each.worker for each in failed] == [incident.subject]


def test_a_killed_server_is_an_incident_and_so_is_what_it_held(tmp_path: Path) -> None:
    job = faulty_job.write_faulty_job(tmp_path)
    stops = ("reduce 0", "reduce 1")
    with faulty_run(job, stops, "job.events=history") as run:
        run.at(*stops)
        server = run.server_of(6)
        name = server.name().removeprefix("mrflight-")
        kill(server)
        run.has_said("takes its place")
        run.go_on()
        done = run.finish()
    assert done.code == 0, done.stderr
    view = read_view(history_of(tmp_path))
    by_kind = {incident.kind: incident for incident in view.incidents}
    lost = by_kind["server_lost"]
    assert (lost.subject, lost.cause) == (f"the data server {name}", "was killed by SIGKILL")
    assert lost.action == "data4 takes its place"
    again = by_kind["output_lost"]
    assert f"/{name}.sock" in again.cause
    assert again.action == "they run again"
    (repair,) = (each for each in view.stages.values() if each.within and each.name == "map")
    assert repair.done == repair.retried > 0
    assert view.result == msgspec.convert(done.result, JobResult)


def test_a_job_on_a_standing_cluster_learns_why_a_server_is_gone() -> None:
    with standing_cluster(data_servers=2) as cluster:
        with mrflight.connect(cluster.metadata) as client:

            def have_told() -> bool:  # their first heartbeats
                return all(server.use.budget_bytes for server in client.status().servers)

            await_that(have_told, "what the servers hold")
        events = Recorder()
        samples = ServerSamples(cluster.metadata, ClientOptions(), events, None)
        samples.take()
        first, second = sorted(events.read(lambda view: list(view.servers)))
        cluster.data_processes[0].terminate()
        await_end(cluster.data_processes[0], "the data server")
        samples.take()
        samples.take()
    view = fold(event for event in events.news(0).events)
    ((location, cause),) = view.lost_servers.items()
    assert server_name(location) in {first, second}
    assert cause == "it has stopped"
    (incident,) = view.incidents
    assert (incident.kind, incident.cause) == ("server_lost", "it has stopped")
    assert incident.subject == f"the data server {server_name(location)}"
    assert all(server.last.budget_bytes == 2 * 2**30 for server in view.servers.values())


def test_the_history_of_a_failed_job_has_its_error(folder: Path) -> None:
    done, view = run(folder, "fail")
    assert done.code == 2
    assert view.state == "failed"
    assert view.result == msgspec.convert(done.result, JobResult)
    assert view.result.error is not None
    assert "no such luck" in view.result.error
    maps = next(stage for stage in view.stages.values() if stage.name == "map")
    assert maps.failed
    assert maps.outcomes["failed"] == view.result.attempts.failed
    assert [incident.kind for incident in view.incidents][:1] == ["attempt_failed"]


@pytest.fixture
def gated(tmp_path: Path) -> GatedJob:
    return gated_job(tmp_path, "parquet", "overwrite")


def test_the_history_of_an_interrupted_job_says_so(gated: GatedJob) -> None:
    with gated.gated("--set", "job.events=history") as driver:
        driver.process.send_signal(signal.SIGINT)
        done = driver.end()
    view = read_view(history_of(gated.folder))
    assert (view.state, view.result) == ("interrupted", msgspec.convert(done.result, JobResult))


def test_a_killed_driver_leaves_what_it_had_recorded(gated: GatedJob) -> None:
    with gated.gated("--set", "job.events=history") as driver:
        driver.process.kill()
        driver.end()
    view = read_view(history_of(gated.folder))
    assert (view.state, view.ended_at) == ("running", None)
    assert view.current is not None
    assert view.current.name == "reduce"


@pytest.mark.slow
def test_a_secret_is_in_no_event(folder: Path) -> None:
    """The store cannot be reached, and its client is told the secret."""
    options = {
        "aws_access_key_id": f"{SECRET}-id",
        "aws_secret_access_key": SECRET,
        "aws_session_token": f"{SECRET}-token",
        "aws_endpoint_url": "http://127.0.0.1:9",
        "aws_region": "nowhere",
        "aws_allow_http": "true",
        "max_retries": "0",
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in options.items()]
    text = JOB.replace("FUNCTION", "keep").replace('"out"', '"s3://bucket/out"')
    done = drive(write_job(folder, "\n".join([text, "[storage]", *lines])))
    assert done.code == 1, done.stderr
    history = history_of(folder).read_text()
    assert read_view(history_of(folder)).state == "failed"
    assert SECRET not in history
    assert SECRET not in done.stderr


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("s3://bucket/history", "is not a folder of this machine"),
        ("in/0.csv", "choose another folder"),
        (" ", "is not a folder of this machine"),
    ],
)
def test_a_history_needs_a_folder(folder: Path, value: str, message: str) -> None:
    job = write_job(folder, JOB.replace("FUNCTION", "keep"))
    done = drive(job, "--set", f"job.events={value}")
    assert done.code == 2
    assert done.message.startswith("job.events: ")
    assert message in done.message


def test_logs_in_json_have_the_job_the_stage_and_the_task(folder: Path) -> None:
    done, _ = run(folder, "warn", "--log-format=json", "-v")
    assert done.code == 0, done.stderr
    records = [json.loads(line) for line in done.stderr.splitlines()]
    careful = [record for record in records if record["message"] == "careful"]
    job = done.result["job_id"]
    assert {record["task"].partition(",")[0] for record in careful} == {
        f"map {number} (rows" for number in range(FILES)
    }
    assert {(each["job"], each["stage"], each["logger"], each["level"]) for each in careful} == {
        (job, "map", "functions", "warning")
    }
    assert len({record["pid"] for record in careful} - {records[-1]["pid"]}) >= 1
    messages = [record["message"] for record in records if record.get("job") == job]
    assert f"map: {FILES} tasks" in messages
    assert any(message.startswith("3,000 rows in") for message in messages)


def test_a_server_logs_in_json(tmp_path: Path) -> None:
    path = tmp_path / "stderr"
    with (
        path.open("wb") as stderr,
        server_process("metadata", "--port=0", "--log-format=json", stderr=stderr) as (_, ready),
    ):
        pass
    records = [json.loads(line) for line in path.read_text().splitlines()]
    location = ready.split()[-1]
    assert records[-1]["message"] == f"{location}: stopping"
    assert {record["level"] for record in records} == {"info"}


def test_a_failure_is_a_record_where_logs_are_json(folder: Path) -> None:
    done, _ = run(folder, "fail", "--log-format=json")
    assert done.code == 2
    *_, last = (json.loads(line) for line in done.stderr.splitlines())
    assert (last["level"], last["logger"]) == ("error", "mrflight.driver")
    assert "no such luck" in last["message"]


def test_python_jobs_have_histories_too(folder: Path) -> None:
    job = write_job(folder, JOB.replace("FUNCTION", "keep"))
    result = mrflight.run(job, progress=False)
    events = list(read_history(history_of(folder)))
    assert isinstance(events[0], JobBegan)
    assert events[-1] == JobEnded(at=events[-1].at, result=result)
    kinds = Counter(type(event) for event in events)
    assert kinds[PartitionsWritten] == 1
    assert kinds[ProcessesSampled] >= 1
    assert kinds[Incident] == 0
