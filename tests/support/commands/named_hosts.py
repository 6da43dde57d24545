"""Loopback addresses that have names for some commands: in a mount namespace of their own."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.commands.running_command import running_command

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="run as root, which may name hosts")


@dataclass(frozen=True)
class NamedHosts:
    """The hosts of a cluster, each with an address of its own; commands run in ``folder``."""

    folder: Path
    names: Sequence[str]

    def __post_init__(self) -> None:
        lines = [f"{self.address(name)} {name}\n" for name in self.names]
        (self.folder / "hosts").write_text("".join(["127.0.0.1 localhost\n", *lines]))

    def address(self, name: str) -> str:
        """The address of a host; the first has 127.0.0.2."""
        return f"127.0.0.{self.names.index(name) + 2}"

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; ``stdout`` has all that it prints."""
        return subprocess.run(
            self._inside(command),
            cwd=self.folder,
            env={**os.environ, "PATH": _path()},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    @contextmanager
    def serving(self, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
        """Start a server of mrflight; its process, and its location once it is ready."""
        command = self._inside(["mrflight", *arguments])
        with running_command(command, {"PATH": _path()}) as server:
            assert server.stdout is not None
            ready = server.stdout.readline()
            assert ready, f"{command} has ended: {server.communicate()[1]}"
            yield server, ready.split()[-1]

    def _inside(self, command: Sequence[str]) -> list[str]:
        inner = f"mount --bind {self.folder}/hosts /etc/hosts && exec {shlex.join(command)}"
        return ["unshare", "--mount", "sh", "-ec", inner]


def _path() -> str:
    return f"{Path(sys.executable).parent}:{os.environ['PATH']}"
