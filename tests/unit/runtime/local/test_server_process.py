"""A server command that cannot go on reports what happened, and does not guess."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.suite.waiting import hang_s

FAILING = """
from mrflight.config.server_options import METADATA
from mrflight.errors import ServerUnavailableError
from mrflight.servers import process


def serve(options):
    def drain():
        raise {drain}

    if {is_before}:
        raise ServerUnavailableError("no metadata server at grpc+tcp://127.0.0.1:1")
    process.run_until_stopped("data", process.Running("grpc+tcp://127.0.0.1:5006", drain), 20.0)


process.main(serve, METADATA, ["--port", "0"])
"""


def message(is_before: bool, drain: str = "AssertionError") -> str:
    """Return the last line of a server that cannot join, or whose drain raises."""
    code = FAILING.format(is_before=is_before, drain=drain)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as server:
        try:
            if not is_before:
                assert "ready at" in server.stdout.readline()
                server.terminate()
            _, stderr = server.communicate(timeout=hang_s())
        finally:
            server.kill()  # or one that hangs would be waited for
    assert server.returncode == 2
    return str(stderr.splitlines()[-1])


def test_a_server_that_cannot_join_does_not_blame_its_address() -> None:
    assert message(is_before=True) == "mrflight: no metadata server at grpc+tcp://127.0.0.1:1"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("ServerUnavailableError('it is gone')", "mrflight: it is gone"),
        (
            "OSError('a disk failed')",
            "mrflight: the data server at grpc+tcp://127.0.0.1:5006 did not stop cleanly: "
            "a disk failed",
        ),
    ],
)
def test_a_drain_that_fails_does_not_blame_the_address(error: str, line: str) -> None:
    assert message(is_before=False, drain=error) == line


def test_an_address_that_is_taken_is_reported(tmp_path: Path) -> None:
    socket = str(tmp_path / "missing" / "socket")
    command = [sys.executable, "-m", "mrflight.servers.metadata", "--socket", socket]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=hang_s())
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(
        f"mrflight: cannot serve at {socket} (is it taken?): "
    )
