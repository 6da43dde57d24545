"""Runs the recovery experiment on little data: all faults hit, and all results are right."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from experiments import datasets, recovery_run
from experiments.recovery import FAULTS, SMALL_ROWS, WITHOUT
from experiments.recovery_snapshot import Snapshot
from tests.support.commands.experiments import ROOT, contents, python
from tests.support.suite.messages import refused

pytestmark = pytest.mark.soak

ROWS = 200_000
ROUNDS = ["--rounds", 1, "--small-rounds", 1, "--fault-rounds", 1]


def test_every_fault_hits_and_is_reported(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--parts", "faults", "--rows", ROWS, *ROUNDS, "--heartbeat-timeout", "2 s"]
    python(
        "-m", "experiments.recovery", *words, "--out", out, "--data", tmp_path / "data",
    )  # fmt: skip
    made = json.loads((out / "recovery.json").read_text())[f"faults, {ROWS:,} rows"]
    assert made.keys() == FAULTS.keys()
    undisturbed = [made[name][0] for name, (fault, _) in FAULTS.items() if fault is None]
    (maps,) = {run["attempts"]["map"] for run in undisturbed}
    for name, (fault, _) in FAULTS.items():
        (run,) = made[name]
        assert bool(run["hit"]) == bool(run["driver_log"]) == (fault is not None), run
        is_stopped = fault is not None and fault.is_stopped
        assert (run["wall_s"] > 2.0) or not is_stopped, run
        assert run["attempts"]["map"] >= maps, run
    assert made["data server killed"][0]["attempts"]["map"] > maps
    assert contents(out)["recovery.md"].decode().count("\n| ") == 1 + len(FAULTS)


def test_maps_that_are_never_half_done_are_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stderr = tmp_path / "stderr"
    stderr.write_text("the driver hangs")
    monkeypatch.setattr(recovery_run, "TIMEOUT_S", 0.1)
    (fault, _) = next(of for of in FAULTS.values() if of[0] is not None)
    assert fault is not None
    driver = subprocess.Popen(["sleep", "600"])
    try:
        with refused(TimeoutError):
            recovery_run._strike(driver, stderr, "nobody", fault)
    finally:
        driver.kill()
        driver.wait()


def test_the_undisturbed_job_is_compared_with_less_and_with_another_commit(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--parts", "checks,before", "--rows", ROWS, *ROUNDS, "--before", ROOT]
    python("-m", "experiments.recovery", *words, "--out", out, "--data", tmp_path / "data")
    made = json.loads((out / "recovery.json").read_text())
    assert len(made[f"checks, {ROWS:,} rows"]) == len(WITHOUT)
    for rows in (SMALL_ROWS, ROWS):
        compared = made[f"before, {rows:,} rows"]
        assert compared.keys() == {"now", "before"}
        assert all(run["driver_log"] == [] and run["wall_s"] > 0 for (run,) in compared.values())


def test_a_snapshot_is_what_is_imported(tmp_path: Path) -> None:
    here = Snapshot(datasets.REPOSITORY, tmp_path / "here")
    (tmp_path / "here" / "mrflight" / "ids.py").write_text("raise ImportError('the copy')")
    done = subprocess.run(
        [*here.driver(), "--help"],
        env={**os.environ, **here.environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "ImportError: the copy" in done.stderr


def test_a_checkout_without_its_kernel_is_no_snapshot(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for name in ("mrflight", "servers"):
        ignored = shutil.ignore_patterns("_kernel*", "__pycache__")
        shutil.copytree(ROOT / name, checkout / name, ignore=ignored)
    with refused(RuntimeError):
        Snapshot(checkout, tmp_path / "copy")


def test_events_that_are_not_synced_are_written(tmp_path: Path) -> None:
    code = f"""
from experiments.recovery_without import *
from mrflight.shuffle.metadata.events import ServerJoined
PARTS["sync"]()
with Journal(Path({str(tmp_path)!r}, "journal")) as journal:
    journal.record(ServerJoined("a", ""))
    journal.record(ServerJoined("b", ""))
    print(journal._connected().execute("PRAGMA synchronous").fetchone())
with Journal(Path({str(tmp_path)!r}, "journal")) as journal:
    print([event.location for event in journal.events()])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["(0,)", "['a', 'b']"], done.stderr


@pytest.mark.parametrize(
    ("part", "code", "printed"),
    [
        ("none", "block.Block.of(1, pa.py_buffer(b'x')).xxh3 != 0", "True"),
        ("checksums", "block.Block.of(1, pa.py_buffer(b'x')).xxh3", "0"),
        ("checksums", "block.check_hash(block.Block(1, pa.py_buffer(b'y'), 0))", "None"),
        ("watch", "ShuffleMonitor().add('anything')", "None"),
        ("journal", "Journal.record(None, 'anything')", "None"),
    ],
)
def test_a_part_that_is_left_out_does_nothing(part: str, code: str, printed: str) -> None:
    lines = ["from experiments.recovery_without import *", f"PARTS[{part!r}]()", f"print({code})"]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.strip() == printed, done.stderr
