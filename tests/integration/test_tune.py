"""Tests of ``mrflight tune`` with real jobs: what it prints, writes, and leaves alone."""

from __future__ import annotations

import json
import signal
import socket
import sys
from pathlib import Path

import pytest

from mrflight.frontend import cli
from mrflight.frontend.tune import experiment
from mrflight.frontend.tune.job_file_edit import edited
from tests.support.commands.leftovers import nothing_left_over, tree
from tests.support.faults.gated_job import gated_job, old_table
from tests.support.jobs.clicks_job import JOB, WEIGH, write_visits
from tests.support.suite.waiting import hang_s

TUNE = (sys.executable, "-m", "mrflight", "tune")
QUICK = ("--budget", "1 s", "--sample", "1 GiB")
"""The two runs that are made in any case."""


@pytest.fixture(autouse=True)
def _only_a_hang_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a trial take its time, however little is left of the budget."""
    monkeypatch.setattr(experiment, "_MIN_TIMEOUT_S", hang_s())


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Return the file of a job that has run."""
    write_visits(tmp_path / "visits", "csv")
    (tmp_path / "clicks.py").write_text(WEIGH)
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    return path


@pytest.mark.slow
def test_a_job_is_tried_and_its_table_is_left_alone(
    job: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (job.parent / "out").mkdir()
    (job.parent / "out" / "kept").write_text("by the user")
    before = tree(job.parent)
    with nothing_left_over(job.parent.parent / "tmp") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        plot = job.parent.parent / "plot.svg"
        with socket.create_server(("127.0.0.1", 0)) as taken:  # a trial has no page and no history
            page = f"cluster.page={taken.getsockname()[1]}"
            options = ("--set", page, "--set", "job.events=history", "--plot", str(plot))
            code = cli.main(["tune", str(job), *QUICK, *options])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert "Sample: 660.7 KiB of 660.7 KiB" in out
    assert "as the job is" in out
    assert "The whole input, by the model (within about " in out
    assert "Not tried, because --budget was used up: shuffle.partitions = 28, " in out
    assert len(err.splitlines()) >= 2
    assert plot.read_text().startswith("<svg ")
    after = {name: each for name, each in tree(job.parent).items() if "__pycache__" not in name}
    assert after == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (JOB.replace("visits/*", "visit/*"), "inputs.visits.path: nothing matches "),
        (JOB.replace("partitions = 7", "partition = 7"), "shuffle.partition: unknown key; "),
    ],
)
def test_a_mistake_is_told_as_by_run(
    job: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job.write_text(text)
    assert cli.main(["tune", str(job)]) == 2
    out, err = capsys.readouterr()
    assert (out, err[:10]) == ("", "mrflight: ")
    assert message in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sample", "0 MiB"], "argument --sample: must be more than 0"),
        (["--budget", "long"], "argument --budget: 'long' is not a time such as '10 min'"),
    ],
)
def test_a_wrong_option_is_told(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["tune", "job.toml", *options])
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_what_a_job_raises_is_told_as_by_run(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (job.parent / "clicks.py").write_text("def weigh(batch):\n    return batch['nothing']\n")
    assert cli.main(["tune", str(job), *QUICK]) == 2
    err = capsys.readouterr().err
    assert "KeyError" in err
    assert err.startswith("mrflight: the map clicks:weigh, given ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "number"),
    [
        (TUNE, signal.SIGINT),
        # What it starts ignores SIGINT then, as with nohup.
        pytest.param(
            ("sh", "-c", 'trap "" INT; exec "$0" "$@"', *TUNE),
            signal.SIGTERM,
            marks=pytest.mark.slow,
        ),
    ],
    ids=["interrupted", "terminated in the background"],
)
def test_an_interrupt_leaves_nothing(
    tmp_path: Path, command: tuple[str, ...], number: signal.Signals
) -> None:
    table = old_table(tmp_path, "parquet")
    job = gated_job(tmp_path, "parquet", "append")
    before = tree(table)
    with nothing_left_over(job.folder / "tmp"):
        with job.gated(command=command) as tuning:
            tuning.process.send_signal(number)
            done = tuning.end()
        assert done.code == 130
        assert done.stderr.endswith("mrflight: interrupted\n")
    assert tree(table) == before


@pytest.mark.slow
def test_what_is_recommended_is_written_into_the_job_file(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of 200 partitions has a part file, although all rows fit into one.

    On a machine that is busy with other work, nothing may be certain enough to be recommended.
    """
    text = JOB.replace("partitions = 7", "# many\npartitions = 200  # too many")
    job.write_text(text)
    code = cli.main(["tune", str(job), "--budget", "20 s", "--write", "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    recommended = json.loads(out)["recommended"]
    assert job.read_text() == edited(text, recommended)
    told = f"{', '.join(recommended)} written" if recommended else "is left as it is"
    assert err.endswith(f"{told}\n")
