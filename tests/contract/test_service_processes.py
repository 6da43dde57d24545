"""Servers end with the tests, however those end, and say why they do not start."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import psutil
import pytest

from tests.services import built, starts
from tests.services.reserved_port import LOOPBACK, reserved_port
from tests.services.server_process import server_process
from tests.services.service_folder import service_folder
from tests.services.starts import NotReadyError, StartFailedError, run_to_its_end, wait_for
from tests.support.clusters.service_processes import has_ended, line_of, program
from tests.support.suite import waiting
from tests.support.suite.messages import refused
from tests.support.suite.waiting import TooSlow, await_that

STARTER = """
import sys, time
from tests.services.server_process import server_process
from tests.services.service_folder import service_folder
with service_folder("test") as folder, server_process("sleep", ["sleep", "600"], folder) as server:
    print(server.pid, folder, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["killed", "closed"])
def test_nothing_outlives_who_started_it(how: str) -> None:
    with program(STARTER) as starter:
        pid, folder = line_of(starter).split()
        assert psutil.pid_exists(int(pid))
        if how == "killed":
            starter.kill()
        else:
            starter.communicate()
        await_that(lambda: has_ended(int(pid)), "the end of the server")
        await_that(lambda: not Path(folder).exists(), "the removal of its folder")


def test_a_server_that_ends_at_once_says_why(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo no such luck; exit 3"]
    with (
        server_process("unlucky", command, tmp_path) as server,
        refused(StartFailedError),
    ):
        wait_for(lambda: False, [server])


def test_a_server_that_stands_still_says_what_it_logged(tmp_path: Path) -> None:
    expected = r"not ready and used no processor for \d+ s; idle logged:\nnothing"
    with (
        server_process("idle", ["sleep", "600"], tmp_path) as server,
        pytest.raises(NotReadyError, match=expected) as caught,
    ):
        wait_for(lambda: False, [server], idle_s=0.3)
    assert isinstance(caught.value, TooSlow)


def test_a_server_that_works_may_take_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used_s: list[float] = []

    def use(server: object) -> float:
        used_s.append(len(used_s) + 1.0)
        return used_s[-1]

    monkeypatch.setattr(starts, "processor_seconds", use)
    with server_process("busy", ["sleep", "600"], tmp_path) as server:
        wait_for(lambda: len(used_s) > 5, [server], idle_s=0.1)


def test_a_server_that_works_and_hangs_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "HANG_S", 0.3)
    with (
        server_process("busy", ["sh", "-c", "while :; do :; done"], tmp_path) as server,
        pytest.raises(NotReadyError, match=r"not ready after \d+ s; busy logged:"),
    ):
        wait_for(lambda: False, [server])


def test_a_preparation_that_fails_says_why(tmp_path: Path) -> None:
    with refused(StartFailedError):
        run_to_its_end("format", ["sh", "-c", "echo no space; exit 1"], tmp_path)


def test_a_folder_goes_when_its_server_does_not_start() -> None:
    kept: list[Path] = []

    def start() -> None:
        with service_folder("test") as folder:
            kept.append(folder)
            run_to_its_end("format", ["sh", "-c", "touch data; exit 1"], folder)

    with pytest.raises(StartFailedError):
        start()
    assert not kept[0].exists()


def test_a_reserved_port_is_for_one_server() -> None:
    with reserved_port() as port:
        with pytest.raises(OSError, match="in use"), socket.socket() as somebody:
            somebody.bind((LOOPBACK, port))
        with socket.create_server((LOOPBACK, port)) as server:  # it sets SO_REUSEADDR
            assert server.getsockname() == (LOOPBACK, port)


def test_what_is_not_built_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(built, "MINIO", tmp_path / "minio")
    monkeypatch.setattr(built, "HDFS_CLASS_PATH", tmp_path / "hdfs.classpath")
    for tool in ("go", "java", "mvn"):
        (tmp_path / tool).touch(mode=0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    with refused(built.NotBuiltError):
        built.minio_program()
    with refused(built.NotBuiltError):
        built.hdfs_class_path()
    built.HDFS_CLASS_PATH.write_text(f"{tmp_path / 'hadoop.jar'}:{tmp_path / 'java'}\n")
    with refused(built.NotBuiltError):
        built.hdfs_class_path()
    monkeypatch.setenv("PATH", os.devnull)
    with refused(built.NotBuiltError):
        built.minio_program()
    with refused(built.NotBuiltError):
        built.hdfs_class_path()
