"""Tests of ``mrflight doctor``: what it finds, what it says, and its exit code."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from msgspec.structs import replace

from mrflight.errors import StoreError
from mrflight.frontend import cli
from mrflight.frontend.doctor import installation as installation_check
from mrflight.frontend.doctor.certificates import certificate
from mrflight.frontend.doctor.clock import clock, clock_by_http
from mrflight.frontend.doctor.finding import Diagnosis, Finding, checked
from mrflight.frontend.doctor.installation import installation
from mrflight.frontend.doctor.machine import (
    Folder,
    Machine,
    file_system,
    machine,
    memory_of_job,
    scratch,
)
from mrflight.storage import s3
from tests.support.suite.waiting import hang_s

GIB = 2**30
GOOD = Machine(16 * GIB, open_files=65536, shared_memory_error="", shm=8 * GIB, cores=8)
DISK = Folder(Path("/mnt/spill"), "", free=100 * GIB, file_system="ext4")

JOB = """
[job]
name = "job"

[inputs.visits]
path = "{path}"
key = ["url"]

[output]
table = "out"
format = "parquet"
"""


def states(findings: Iterator[Finding]) -> dict[str, str]:
    return {finding.check: finding.state for finding in findings if finding.state != "ok"}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (GOOD, {}),
        (replace(GOOD, open_files=-1), {}),
        (replace(GOOD, free_memory=GIB // 2), {"memory": "warning"}),
        (replace(GOOD, open_files=1024), {"open files": "warning"}),
        (replace(GOOD, shared_memory_error="not permitted"), {"shared memory": "warning"}),
        (replace(GOOD, shm=64 << 20), {"/dev/shm": "warning"}),
        (replace(GOOD, shm=None), {"/dev/shm": "warning"}),
    ],
)
def test_what_a_machine_lacks_is_found(found: Machine, expected: dict[str, str]) -> None:
    assert states(machine(found, with_ray=True)) == expected


def test_only_jobs_on_ray_need_shared_memory_of_the_system() -> None:
    assert states(machine(replace(GOOD, shm=None))) == {}


def test_this_machine_can_run_jobs() -> None:
    assert "problem" not in states(machine(Machine.here(), with_ray=True)).values()


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (DISK, "ok"),
        (replace(DISK, free=GIB), "warning"),
        (replace(DISK, file_system="tmpfs"), "warning"),
        (replace(DISK, error="Read-only file system"), "problem"),
    ],
)
def test_a_folder_to_spill_to_needs_space_on_a_disk(found: Folder, state: str) -> None:
    finding = scratch(found, "cluster.spill_dir")
    assert finding.state == state
    assert ("cluster.spill_dir" in finding.advice) is (state != "ok")


def test_a_folder_that_is_not_there_is_looked_at_where_it_would_be_made(tmp_path: Path) -> None:
    found = Folder.at(tmp_path / "a" / "b")
    assert (found.error, list(tmp_path.iterdir())) == ("", [])
    assert found.free > 0
    assert Folder.at(Path("/proc/spill")).error != ""


def test_the_file_system_is_that_of_the_innermost_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    inner = str(tmp_path / "in ner").replace(" ", "\\040")
    mounts.write_text(f"/dev/a / ext4 rw 0 0\nx {inner} tmpfs rw 0 0\nx /other xfs rw 0 0\n")
    assert file_system(tmp_path / "in ner" / "folder", mounts) == "tmpfs"
    assert file_system(tmp_path, mounts) == "ext4"
    assert file_system(tmp_path, tmp_path / "missing") == ""


@pytest.mark.parametrize(("free", "state"), [(8 * GIB, "ok"), (3 * GIB, "warning")])
def test_a_job_that_takes_more_memory_than_is_free_may_be_killed(free: int, state: str) -> None:
    assert memory_of_job(4 * GIB, free).state == state


@pytest.mark.parametrize(
    ("ahead_s", "state", "words"),
    [
        (3, "ok", "as that of"),
        (-40, "warning", "40 s behind that of"),
        (90, "warning", "90 s ahead of that of"),
        (-1200, "problem", "1200 s behind that of"),
    ],
)
def test_a_clock_that_is_wrong_is_found(ahead_s: float, state: str, words: str) -> None:
    finding = clock(ahead_s, "the store")
    assert finding.state == state
    assert words in finding.what


@pytest.mark.parametrize(
    ("days", "state"), [(300, "ok"), (15, "ok"), (13, "warning"), (0, "problem"), (-3, "problem")]
)
def test_a_certificate_that_ends_soon_is_found(days: int, state: str) -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    finding = certificate("certificate a.pem", now + timedelta(days=days), now)
    assert finding.state == state


@contextmanager
def answering(date: str | None, status: int) -> Iterator[str]:
    """A web server with a clock of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response_only(status)
            if date is not None:
                self.send_header("Date", date)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("hours", "status", "state"), [(0, 200, "ok"), (0, 403, "ok"), (1, 403, "problem")]
)
def test_the_clock_is_compared_with_that_of_a_web_server(
    hours: int, status: int, state: str
) -> None:
    theirs = datetime.now(UTC) - timedelta(hours=hours)
    with answering(format_datetime(theirs), status) as url:
        finding = clock_by_http(url, hang_s())
    assert finding.state == state
    assert url in finding.what


@pytest.mark.parametrize("date", [None, "yesterday"])
def test_a_server_that_does_not_tell_its_time_is_no_problem(date: str | None) -> None:
    with answering(date, 200) as url:
        finding = clock_by_http(url, hang_s())
    assert (finding.state, finding.what) == ("ok", f"not compared, as {url} did not tell its time")
    assert "did not answer" in clock_by_http(url, hang_s()).what


def test_a_check_that_fails_or_hangs_is_a_problem() -> None:
    ends = threading.Event()

    def fails() -> list[Finding]:
        raise StoreError("the store is closed")

    def hangs() -> list[Finding]:
        ends.wait()
        return []

    assert checked("store", fails, hang_s()) == [Finding("store", "problem", "the store is closed")]
    late = Finding("store", "problem", "it does not answer within 0.01 s", "start it")
    assert checked("store", hangs, 0.01, "start it") == [late]
    ends.set()


@pytest.mark.parametrize(
    ("language", "expected"), [("rust", {}), ("python", {"kernel": "warning"})]
)
def test_a_missing_kernel_is_found(
    language: str, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation_check, "kernel_language", lambda: language)
    assert states(installation()) == expected


def test_the_text_says_what_to_do() -> None:
    diagnosis = Diagnosis.of(
        [Finding("a", "ok", "good"), Finding("b", "problem", "bad " * 40, "mend it")]
    )
    lines = diagnosis.text().splitlines()
    assert lines[:2] == ["ok       a: good", f"problem  b: {'bad ' * 22}".rstrip()]
    assert lines[3:] == ["         -> mend it", "", "1 problem, 0 warnings"]


def doctor(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, str]]:
    """Return the exit code, and what was found that is not ok."""
    code = cli.main(["doctor", "--json", *arguments])
    diagnosis = json.loads(capsys.readouterr().out)
    found = diagnosis["findings"]
    assert (diagnosis["state"] == "problem") is (code == 1)
    assert all(each["advice"] or each["state"] != "warning" for each in found)
    return code, {x["check"]: x["what"] for x in found if x["state"] == "problem"}


def test_a_machine_is_looked_at_without_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor(capsys) == (0, {})


def test_a_job_that_can_start_has_no_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "visits.csv").write_text("url\na\n")
    (tmp_path / "job.toml").write_text(JOB.format(path="*.csv"))
    assert doctor(capsys, str(tmp_path / "job.toml")) == (0, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.toml", "visits.csv"]


@pytest.mark.parametrize(
    ("settings", "check", "what"),
    [
        ([], "plan", "nothing matches"),
        (["inputs.visits.path=x"], "plan", "x"),
        (["cluster.memory=1 MiB"], "settings", "cluster.memory: 1.0 MiB is too little"),
        (["cluster.worker=1"], "job.toml", "cluster.worker"),
        (["cluster.spill_dir=/proc/x"], "temporary files in /proc/x", ""),
    ],
)
def test_what_keeps_a_job_from_starting_is_found(
    settings: list[str],
    check: str,
    what: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text(JOB.format(path="*.csv"))
    given = [word for setting in settings for word in ("--set", setting)]
    code, problems = doctor(capsys, "job.toml", *given)
    assert code == 1
    assert what in problems[check]


def test_a_store_that_does_not_answer_is_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its secret is not shown, and the plan, which would wait for it again, is left out."""
    monkeypatch.setattr(s3, "_RETRY_TIMEOUT", timedelta(milliseconds=200))
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text(
        JOB.format(path="s3://bucket/visits/*.csv")
        + '[storage]\naws_endpoint_url = "http://127.0.0.1:9"\naws_allow_http = "true"\n'
        'aws_access_key_id = "key"\naws_secret_access_key = "planted"\n'
    )
    code, problems = doctor(capsys, "job.toml", "--timeout", "1 h")
    assert (code, list(problems)) == (1, ["s3://bucket/visits"])
    assert "planted" not in str(problems)
