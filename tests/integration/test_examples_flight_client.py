"""``examples/flight_client``: clients in two languages that know Arrow Flight but not mrflight."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import mrflight
from tests.support.commands.experiments import FLIGHT_CLIENT, python

COUNTS = {"a": 3, "cities": 1, "of": 2, "on": 1, "tale": 2, "the": 1, "tower": 1, "tub": 1}
COUNTS |= {"two": 2}


def counts(printed: str) -> dict[str, int]:
    """Return the number of each word, which must be printed once."""
    lines = [line.split() for line in printed.splitlines()]
    assert len({word for word, _ in lines}) == len(lines)
    return {word: int(count) for word, count in lines}


def test_the_client_in_python_counts_words(cluster: mrflight.Cluster) -> None:
    printed = python(FLIGHT_CLIENT / "client.py", cluster.location)
    assert counts(printed) == COUNTS


@pytest.mark.slow
def test_the_client_in_go_counts_words(cluster: mrflight.Cluster, tmp_path: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("the client in Go is not built: install Go")
    folder, program = FLIGHT_CLIENT / "go", tmp_path / "words"
    subprocess.run([go, "vet", "."], cwd=folder, check=True)
    subprocess.run([go, "build", "-o", program, "."], cwd=folder, check=True)
    done = subprocess.run([program, cluster.location], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert counts(done.stdout) == COUNTS
