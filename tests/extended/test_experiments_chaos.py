"""The soak with real faults, a few runs on little data, and what it reports of each."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from experiments import (
    chaos_checks,
    chaos_crashes,
    chaos_faults,
    chaos_processes,
    chaos_run,
    datasets,
    oracle,
)
from experiments.chaos_faults import Target
from experiments.chaos_outcome import Bench
from experiments.chaos_plan import FAULTS, Moment, Scenario, Strike, plan, with_earlier_faults
from tests.support.commands.experiments import PROGRAM_TIMEOUT_S, ROOT, contents

pytestmark = pytest.mark.soak

SEED = 519
RUNS = 9


def soak(out: Path, *options: object) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Run the soak; how it ended, and the report that it left."""
    data = out.with_name("data")
    command = [sys.executable, "-m", "experiments.chaos", "--out", out, "--data", data]
    done = subprocess.run(
        [*map(str, command), *map(str, options)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
    )
    report: dict[str, Any] = json.loads((out / "chaos.json").read_text())
    return done, report


def test_whoever_is_killed_stopped_or_cut_off_nothing_is_lost(tmp_path: Path) -> None:
    """These seeds kill one of each, freeze a data server, and cut both kinds of servers."""
    done, report = soak(
        tmp_path / "out",
        *("--runs", RUNS, "--seed", SEED, "--rows", 20_000, "--faults", "kill,freeze,cut"),
        *("--undisturbed", 1),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [run["seed"] for run in report["runs"]] == [SEED + number for number in range(RUNS)]
    for run in report["runs"]:
        assert len(run["hits"]) == 1, run
        assert run["state"] == "committed" or run["rerun"] == "committed", run
        assert (run["wrong"], run["leftovers"], run["missed"]) == ([], [], ""), run
    assert f"| all | {RUNS} | {RUNS} |" in contents(tmp_path / "out")["chaos.md"].decode()


FREEZE = Strike("driver", "freeze", Moment("map"), 0, 0.0)
KILL_LATER = Strike("driver", "kill", Moment("commit"), 0, 0.0)


@pytest.mark.parametrize(
    ("strikes", "message"),
    [
        ((FREEZE,), ""),
        (
            (FREEZE, KILL_LATER),
            f"{KILL_LATER.description}: the job hung before the driver reported its commit",
        ),
    ],
    ids=["when all is done to it", "before a fault comes to it"],
)
def test_a_job_that_takes_too_long_is_a_hang_and_says_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strikes: tuple[Strike, ...], message: str
) -> None:
    """It hangs in its map; its remaining time is over at once."""

    def strike(target: Target, what: Strike) -> str:
        hit = chaos_faults.strike(target, what)
        assert target.hangs_at == target.started + bench.hang_s
        target.hangs_at = time.monotonic()
        return hit

    monkeypatch.setattr(chaos_run, "strike", strike)
    inputs = datasets.generate(datasets.DataSet("unique", 20_000, 4), tmp_path)
    bench = Bench(inputs, oracle.clicks_of(inputs), {}, hang_s=60.0)
    outcome = chaos_run.run(bench, Scenario(0, "embedded", 2, 1, strikes))
    assert (outcome.state, outcome.missed, outcome.message) == ("hung", "", message)
    assert len(outcome.hits) == 1
    assert outcome.is_bad
    assert "most recent call first" in outcome.stderr
    assert (outcome.leftovers, outcome.wrong, outcome.rerun) == ([], [], "")


def test_a_server_that_crashes_by_itself_is_wrong_though_the_job_survives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run means to kill one, and it crashes first.

    The job lasts long enough that its driver notices the end of the server.
    """
    victims = {}

    def crash(target: Target, what: Strike) -> str:
        chaos_faults._await_moment(target, what.moment)
        process, server = chaos_faults._victim(target, what)
        process.send_signal(signal.SIGSEGV)
        victims[what.victim] = server.name if server else "data server data"
        return "crashed"

    monkeypatch.setattr(chaos_run, "strike", crash)
    inputs = datasets.generate(datasets.DataSet("unique", 1_000_000, 4), tmp_path)
    bench = Bench(inputs, oracle.clicks_of(inputs), {}, hang_s=60.0)
    kill = Strike("data", "kill", Moment("map"), 0, 1.0)
    for cluster, how in {"embedded": "SIGSEGV", "standing": "signal 11"}.items():
        outcome = chaos_run.run(bench, Scenario(0, cluster, 3, 2, (kill,)))
        assert outcome.state == "committed"
        assert outcome.went_wrong
        (wrong,) = outcome.wrong
        assert victims["data"] in wrong
        assert wrong.endswith(f"was killed by {how}")


DATA, METADATA = "the data server data1", "the metadata server"
TELLS = f"""map: 3 of 10
{DATA} was killed by SIGKILL; data3 takes its place
{METADATA} has not answered for 2 s and is ended
{METADATA} was killed by SIGKILL; it is started again
"""


def test_what_a_driver_tells_of_ends_is_wrong_unless_somebody_meant_it() -> None:
    kill = Strike("data", "kill", Moment("map"), 0, 1.0)
    assert chaos_crashes.unexpected_ends(TELLS, [kill]) == []
    assert chaos_crashes.unexpected_ends(TELLS, []) == [f"{METADATA} was killed by SIGKILL"]
    ended = f"{DATA} ended with code 1 (MemoryError); data3 takes its place"
    assert chaos_crashes.unexpected_ends(ended, [kill]) == [f"{DATA} ended with code 1"]
    forks = (
        "the process that servers and workers are forked from was killed by SIGKILL, and they end "
        "with it; it is started again"
    )
    kill_forks = Strike("forks", "kill", Moment("map"), 0, 1.0)
    assert chaos_crashes.unexpected_ends(f"{forks}\n{TELLS}", [kill_forks]) == []
    assert chaos_crashes.unexpected_ends(f"{forks}\n{TELLS}", []) == [forks]
    crashed = "map 3 runs again: it crashed in native code, by SIGSEGV"
    assert chaos_crashes.unexpected_ends(crashed, [kill]) == [crashed]


@pytest.mark.parametrize(
    ("code", "was_killed", "wrong"),
    [(0, False, 0), (-9, True, 0), (-9, False, 1), (-11, True, 1), (-6, False, 1), (1, True, 1)],
)
def test_a_process_ends_with_0_or_is_killed(code: int, was_killed: bool, wrong: int) -> None:
    assert len(chaos_crashes.unexpected_end("data0", code, was_killed)) == wrong


def test_a_seed_is_always_the_same_run_and_all_faults_come() -> None:
    scenarios = [plan(seed) for seed in range(2000)]
    assert scenarios == [plan(seed) for seed in range(2000)]
    seen = {
        (scenario.cluster, strike.victim, strike.fault)
        for scenario in scenarios
        for strike in scenario.strikes
    }
    assert seen == {
        (cluster, victim, fault)
        for cluster, of_cluster in FAULTS.items()
        for victim, faults in of_cluster.items()
        for fault in faults
    }
    assert {scenario.data_servers for scenario in scenarios} == {2, 3, 4}
    assert {scenario.replicas for scenario in scenarios} == {1, 2}


def test_a_fault_that_came_too_late_comes_in_half_the_time() -> None:
    for seed in range(100):
        scenario = plan(seed, strikes=2)
        for strike, earlier in zip(
            scenario.strikes, with_earlier_faults(scenario).strikes, strict=True
        ):
            if earlier.moment.stage == strike.moment.stage:
                assert earlier.moment.share == strike.moment.share / 2
                assert earlier.moment.after_s == strike.moment.after_s / 2
            else:
                stages = (earlier.moment.stage, strike.moment.stage)
                assert stages in (("map", "reduce"), ("reduce", "commit"))
            assert (earlier.victim, earlier.fault) == (strike.victim, strike.fault)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    write_deltalake(tmp_path / "table", pa.table({"url": ["a", "b"], "clicks": [1, 2]}))
    return tmp_path / "table"


@pytest.mark.parametrize(
    ("clicks", "said"),
    [({"a": 1, "b": 2}, []), ({"a": 1, "b": 3}, ["1 sites with a wrong"]), ({"a": 1}, ["2 sites"])],
)
def test_a_wrong_result_is_told(table: Path, clicks: dict[str, int], said: list[str]) -> None:
    expected = pa.table({"url": list(clicks), "clicks": list(clicks.values())})
    wrong = chaos_checks.result_of(table, expected)
    assert len(wrong) == len(said)
    assert all(part in text for part, text in zip(said, wrong, strict=True))


def test_a_second_commit_is_told(table: Path) -> None:
    again = pa.table({"url": ["a"], "clicks": [1]})
    write_deltalake(table, again, mode="append")
    wrong = chaos_checks.result_of(table, pa.table({"url": ["a", "b"], "clicks": [1, 2]}))
    assert wrong[0] == "2 commits instead of one"
    assert len(wrong) == 2


def test_files_that_no_log_names_are_told(table: Path) -> None:
    (table / "part-00000-0-20200101T000000-abcdefabcdef.parquet").write_bytes(b"of a dead job")
    (table / "stray").write_bytes(b"of nobody that clean knows")
    assert chaos_checks.files_left(table) == (1, ["file stray"])


def test_stacks_are_read_while_others_remove_folders(tmp_path: Path) -> None:
    """The fork server of a killed driver removes its folders at that time."""
    (tmp_path / "driver.log").write_text("where it was")
    read = threading.Event()

    def make_and_remove() -> None:
        while not read.is_set():
            for name in "abcdefgh":
                (tmp_path / name / "deep").mkdir(parents=True)
            for name in "abcdefgh":
                shutil.rmtree(tmp_path / name)

    remover = threading.Thread(target=make_and_remove)
    remover.start()
    try:
        for _ in range(500):
            assert chaos_processes.dump_stacks([], tmp_path) == "--- driver.log\nwhere it was"
    finally:
        read.set()
        remover.join()
