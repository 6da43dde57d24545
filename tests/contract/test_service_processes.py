"""Servers end with the tests, however those end, and say why they do not start."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import psutil
import pytest

from tests.services import built
from tests.services.reserved_port import LOOPBACK, reserved_port
from tests.services.server_process import (
    StartFailedError,
    run_to_its_end,
    server_process,
    wait_for,
)
from tests.services.service_folder import service_folder
from tests.support.clusters.supervised_cluster import until
from tests.support.commands.running_command import running_command

ROOT = Path(__file__).parents[2]

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
    command = [sys.executable, "-c", STARTER]
    with running_command(command, {"PYTHONPATH": str(ROOT)}) as starter:
        assert starter.stdout is not None
        pid, folder = starter.stdout.readline().split()
        if how == "killed":
            starter.kill()
        else:
            starter.communicate()
        until(lambda: _has_ended(int(pid)))
        until(lambda: not Path(folder).exists())


def _has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE  # of who adopted it
    except psutil.NoSuchProcess:
        return True


def test_a_server_that_ends_at_once_says_why(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo no such luck; exit 3"]
    with (
        server_process("unlucky", command, tmp_path) as server,
        pytest.raises(StartFailedError, match=r"unlucky ended with 3; .*\nno such luck"),
    ):
        wait_for(lambda: False, [server], 30)


def test_a_server_that_is_never_ready_says_what_it_logged(tmp_path: Path) -> None:
    expected = "not ready within 0.3 s; idle logged:\nnothing"
    with (
        server_process("idle", ["sleep", "600"], tmp_path) as server,
        pytest.raises(StartFailedError, match=expected),
    ):
        wait_for(lambda: False, [server], 0.3)


def test_a_preparation_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(StartFailedError, match=r"format failed with 1; .*\nno space"):
        run_to_its_end("format", ["sh", "-c", "echo no space; exit 1"], tmp_path, 30)


def test_a_folder_goes_when_its_server_does_not_start() -> None:
    kept: list[Path] = []

    def start() -> None:
        with service_folder("test") as folder:
            kept.append(folder)
            run_to_its_end("format", ["sh", "-c", "touch data; exit 1"], folder, 30)

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
    with pytest.raises(built.NotBuiltError, match=r"^MinIO is not built: make services$"):
        built.minio_program()
    with pytest.raises(built.NotBuiltError, match=r"^HDFS is not built: make services$"):
        built.hdfs_class_path()
    built.HDFS_CLASS_PATH.write_text(f"{tmp_path / 'hadoop.jar'}:{tmp_path / 'java'}\n")
    with pytest.raises(built.NotBuiltError, match="1 jars are gone: make -B services"):
        built.hdfs_class_path()
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(built.NotBuiltError, match="install Go, then make services"):
        built.minio_program()
    with pytest.raises(built.NotBuiltError, match="install Java 17 and Maven, then make services"):
        built.hdfs_class_path()
