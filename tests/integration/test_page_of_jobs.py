"""The page of real jobs: its numbers are the result's, and only its user reads it."""

from __future__ import annotations

import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from playwright.sync_api import Browser, expect
from playwright.sync_api import Page as BrowserPage

from mrflight.events.history import read_view
from tests.support.commands.browser import (
    browser_page,
    figures,
    fixed,
    kib,
    launched_browser,
    table,
    texts,
)
from tests.support.commands.driver import drive, write_job
from tests.support.commands.http import get
from tests.support.commands.mrflight import mrflight as run
from tests.support.faults import faulty_job
from tests.support.faults.faulty_run import (
    FaultyRun,
    await_that,
    faulty_run,
    kill,
)

NAME = "<img src=x onerror=alert(1)>"
FILES, ROWS, PARTITIONS = 3, 1000, 4

JOB = f"""
[job]
name = "{NAME}"
events = "history"
[inputs.rows]
path = "in/*.csv"
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


@pytest.fixture(scope="module")
def launched(chromium: str) -> Iterator[Browser]:
    with launched_browser(chromium) as browser:
        yield browser


@pytest.fixture
def browser(launched: Browser) -> Iterator[BrowserPage]:
    with browser_page(launched) as page:
        yield page


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder with the report and the history of a job, and the job's JSON."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "in").mkdir()
    for number in range(FILES):
        lines = (f"{number * ROWS + row},{row % 7}" for row in range(ROWS))
        (folder / "in" / f"{number}.csv").write_text("\n".join(["k,v", *lines, ""]))
    done = drive(write_job(folder, JOB), "--report", str(folder / "report.html"))
    assert done.code == 0, done.stderr
    return folder, done.result


def has_the_numbers_of(page: BrowserPage, result: dict[str, Any]) -> None:
    expect(page.locator("#state")).to_have_text("committed")
    expect(page.locator("h1")).to_have_text(NAME)
    shown, notes = figures(page), figures(page, "small")
    attempts = result["attempts"]
    assert shown["Rows in"] == f"{result['rows_in']:,}" == f"{FILES * ROWS:,}"
    assert shown["Rows out"] == f"{result['rows_out']:,}"
    assert notes["Shuffled"] == f"{result['partitions']} partitions"
    assert shown["Shuffled"] == kib(result["bytes_shuffled"])
    assert notes["Attempts"] == f"{attempts['map']} map, {attempts['reduce']} reduce"
    assert shown["Failed attempts"] == f"{attempts['failed']}"
    assert shown["Memory"] == f"{fixed(result['peak_memory_bytes'] / 2**20, 1)} MiB"
    assert f"map {fixed(result['seconds']['map'], 2)}" in notes["Time"]
    stages = table(page, "#stages")
    assert stages["map"][1:3] == [str(FILES), f"{result['rows_in']:,}"]
    assert stages["reduce"][2] == f"{result['rows_out']:,}"


def test_a_report_has_the_numbers_of_the_json(
    browser: BrowserPage, ended: tuple[Path, dict[str, Any]]
) -> None:
    folder, result = ended
    browser.goto(f"file://{folder}/report.html")
    has_the_numbers_of(browser, result)


def test_the_page_of_a_history_has_the_numbers_of_the_json(
    browser: BrowserPage, ended: tuple[Path, dict[str, Any]]
) -> None:
    folder, result = ended
    command = [sys.executable, "-m", "mrflight", "page", str(folder / "history")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            link = link_in(process.stderr.readline())
            browser.goto(link.as_uri())  # which leads to the page
            has_the_numbers_of(browser, result)
        finally:
            process.send_signal(signal.SIGINT)
    assert process.returncode == 0
    assert not link.exists()


def test_a_report_is_made_of_a_history_as_well(
    browser: BrowserPage, ended: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder, result = ended
    path = tmp_path / "of a history.html"
    done = run("page", folder / "history", "--report", path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"wrote {path}, ")
    browser.goto(path.as_uri())
    has_the_numbers_of(browser, result)


def test_what_is_no_history_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n")
    for path in (tmp_path / "a.jsonl", tmp_path / "none.jsonl", tmp_path / "a.jsonl" / "x"):
        done = run("page", path)
        assert done.returncode == 2
        assert str(path) in done.stderr
        assert "Traceback" not in done.stderr


def link_in(stderr: str) -> Path:
    """The file with the link that a command has named."""
    found = re.search(r"file://(\S+)", stderr)
    assert found is not None, stderr
    return Path(found[1])


def url_in(link: Path) -> tuple[int, str]:
    """The port and the token of the page that a file leads to."""
    found = re.search(r"url=http://127\.0\.0\.1:(\d+)/#([\w-]+)'", link.read_text())
    assert found is not None
    return int(found[1]), found[2]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return faulty_job.write_faulty_job(tmp_path)


def has_link(run: FaultyRun) -> Path:
    run.has_said("file://")
    return link_in(run.stderr)


def test_only_its_user_learns_where_the_page_is(job: Path, promtool: str) -> None:
    with faulty_run(job, ("map 3 batch 2",), "cluster.page=true") as run:
        run.at("map 3 batch 2")
        link = has_link(run)
        assert stat.S_IMODE(link.stat().st_mode) == 0o600
        assert stat.S_IMODE(link.parent.stat().st_mode) == 0o700
        port, token = url_in(link)
        for process in psutil.process_iter(["cmdline"]):
            assert token not in " ".join(process.info["cmdline"] or ())
        for path in ("/events", "/metrics", "/nothing"):
            assert get(port, path).status == 401
            assert get(port, path, token, headers={"Host": "evil.example"}).status == 403
        assert b"faulty" not in get(port, "/").body
        assert get(port, "/healthz").body == b"ok\n"
        metrics = get(port, "/metrics", token).body.decode()
        checked = subprocess.run(
            [promtool, "check", "metrics"],
            input=metrics,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
        assert re.search(r"^mrflight_job_running 1.0$", metrics, re.MULTILINE)
        assert "faulty" not in metrics
        run.go_on()
        done = run.finish()
    assert done.code == 0
    assert token not in done.stdout + done.stderr
    assert not link.exists()
    with pytest.raises(ConnectionRefusedError):
        get(port, "/healthz")


def test_a_page_shows_what_was_lost_and_what_was_done_about_it(
    browser: BrowserPage, job: Path, tmp_path: Path
) -> None:
    history = f"job.events={tmp_path / 'history'}"
    with faulty_run(job, ("map 3 batch 2", "map 4 batch 2"), "cluster.page=true", history) as run:
        run.at("map 3 batch 2", "map 4 batch 2")
        browser.goto(has_link(run).as_uri())
        expect(browser.locator("#state")).to_have_text("running")
        expect(browser.locator("#stages tbody tr")).to_have_count(1)
        expect(browser.locator("#stages td:nth-child(3)")).to_have_text("3 / 5")
        expect(browser.locator("#incidents")).to_have_text("Nothing so far.")
        kill(run.processes("data")[0])
        expect(browser.locator("#incidents li")).not_to_have_count(0)
        expect(browser.locator("#incidents")).to_contain_text("was killed by SIGKILL")
        run.go_on()
        assert run.finish().code == 0
        result = msgspec.json.decode((job.parent / "stdout").read_text().splitlines()[-1])
        expect(browser.locator("#state")).to_have_text("committed")
    (path,) = (tmp_path / "history").iterdir()
    view = read_view(path)
    assert len(texts(browser, "#incidents li")) == len(view.incidents)
    shown = figures(browser)
    assert shown["Rows in"] == f"{result['rows_in']:,}"
    attempts = result["attempts"]
    assert shown["Attempts"] == str(attempts["map"] + attempts["reduce"])
    assert shown["Failed attempts"] == str(attempts["failed"])
    assert await_that(lambda: "takes its place" in browser.locator("#incidents").inner_text(), "it")


def test_a_port_that_is_taken_ends_the_job_before_it_begins(job: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = drive(job, "--set", f"cluster.page={port}")
    assert done.code == 2
    assert f"the page cannot listen at 127.0.0.1:{port}" in done.message
