"""Every port of every process of a job and of a cluster refuses who has no credentials."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.commands.leftovers import processes_of
from tests.support.commands.open_ports import (
    METHODS,
    NOT_THERE,
    REFUSED,
    SERVICE,
    call,
    reached_by_another_user,
    tcp_ports,
    unix_sockets,
)
from tests.support.faults.matrix import at_the_moment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


def ends_of_all_calls(target: str) -> set[object]:
    return {call(target, f"/{SERVICE}/{name}", kind) for name, kind in METHODS.items()}


@pytest.mark.slow
def test_a_job_listens_to_its_own_processes_only(tmp_path: Path) -> None:
    with at_the_moment(tmp_path, "map") as (run, stopped):
        processes = processes_of(run.mark)
        assert {process.pid for process in stopped.values()} <= {each.pid for each in processes}
        assert tcp_ports(processes) == set()
        sockets = unix_sockets(processes)
        servers = {name for name in sockets if name.endswith(".sock")}
        assert {Path(name).name for name in servers} >= {"metadata.sock", "data0.sock"}
        for name in servers:
            assert ends_of_all_calls(f"unix:{name}") <= REFUSED | NOT_THERE, name
        if os.geteuid() == 0:
            assert {name for name in sockets if reached_by_another_user(name)} == set()
        for process in processes:
            assert not shows_a_token(process, run.temporary), process


def shows_a_token(process: psutil.Process, folder: Path) -> bool:
    """Return whether the command line or the environment of a process has a token of its job."""
    tokens = [path.read_text() for path in folder.glob("mrflight-*/*.token")]
    assert len(tokens) == 2
    shown = " ".join([*process.cmdline(), *process.environ().values()])
    return any(token in shown for token in tokens)
