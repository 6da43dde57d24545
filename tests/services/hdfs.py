"""An Apache HDFS on loopback: a name node and two data nodes."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.services.built import hdfs_class_path
from tests.services.get import get
from tests.services.hdfs_settings import write_settings
from tests.services.java import QUICK_START, java_command
from tests.services.reserved_port import LOOPBACK, reserved_port
from tests.services.server_process import ServerProcess, server_process
from tests.services.service_folder import service_folder
from tests.services.starts import run_to_its_end, wait_for

DATA_NODES = 2
BLOCK_BYTES = 128 << 20  # of HDFS itself

_SERVER = "org.apache.hadoop.hdfs.server"


@dataclass(frozen=True)
class Hdfs:
    """One that runs."""

    port: int
    http_port: int
    name_node: ServerProcess
    data_nodes: Sequence[ServerProcess]
    java: Sequence[str]
    """The command that runs a class of it."""
    own_folder: Path

    @property
    def url(self) -> str:
        return f"hdfs://{LOOPBACK}:{self.port}"

    def folder(self) -> str:
        """The URL of a new one, which nobody has made yet."""
        return f"{self.url}/{secrets.token_hex(6)}"

    def put(self, file: Path, path: str) -> None:
        """Copy a local file there by Hadoop's own client.

        That waits where the name node has not heard of a block yet that a data node has. Our
        client (deltalake 1.6) does not, and fails where small blocks are full so soon.
        """
        command = [*self.java, "org.apache.hadoop.fs.FsShell", "-put", str(file), self.url + path]
        run_to_its_end(f"put-{os.getpid()}", command, self.own_folder)

    def change_mode(self, mode: str, path: str) -> None:
        """Change the mode of a file or folder; ``mode`` is written as for chmod."""
        command = [*self.java, "org.apache.hadoop.fs.FsShell", "-chmod", mode, self.url + path]
        run_to_its_end(f"chmod-{os.getpid()}", command, self.own_folder)

    def live_data_nodes(self) -> list[str]:
        """The addresses of those that can be written to, as the name node sees it."""
        nodes = msgspec.json.decode(self._state("NameNodeInfo").live_nodes, type=dict[str, _Node])
        # Without a capacity it has registered, and not told yet where it can store anything.
        return sorted(node.xferaddr for node in nodes.values() if node.capacity)

    def is_ready(self) -> bool:
        """Return whether every data node takes writes."""
        live = self.live_data_nodes()
        if len(live) < len(self.data_nodes) or not all(map(_listens, live)):
            return False
        return self._state("FSNamesystemState").fs_state == "Operational"  # or safe mode

    def restart(self) -> None:
        """Start again who was killed, with what it has stored; returns once all take writes.

        Data nodes get other ports.
        """
        servers = [self.name_node, *self.data_nodes]
        for server in servers:
            if server.poll() is not None:
                server.start_again()
        wait_for(self.is_ready, servers)

    def _state(self, name: str) -> _State:
        path = f"/jmx?qry=Hadoop:service=NameNode,name={name}"
        status, body = get(self.http_port, path)
        beans = msgspec.json.decode(body, type=_States).beans if status == 200 else []
        return beans[0] if beans else _State()  # it is not there before the name node is


class _State(msgspec.Struct):
    """The name node's state, under either name of its bean."""

    live_nodes: str = msgspec.field(name="LiveNodes", default="{}")
    fs_state: str = msgspec.field(name="FSState", default="")


class _States(msgspec.Struct):
    beans: list[_State]


class _Node(msgspec.Struct):
    xferaddr: str
    capacity: int = 0


def _listens(address: str) -> bool:
    """The name node takes one that was killed for a live one for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port))).close()
    except ConnectionRefusedError:
        return False
    return True


@contextmanager
def running_hdfs(
    port: int = 0,
    replication: int = 1,
    block_bytes: int = BLOCK_BYTES,
    java_options: Sequence[str] = QUICK_START,
) -> Iterator[Hdfs]:
    """One that is ready; port 0 stands for any. The client of HopsFS knows only 8020.

    Raises NotBuiltError, PortTakenError, StartFailedError.
    """
    jars = hdfs_class_path()
    with ExitStack() as stack:
        port = stack.enter_context(reserved_port(port))
        http_port = stack.enter_context(reserved_port())
        folder = stack.enter_context(service_folder("hdfs"))
        settings = folder / "settings"
        write_settings(settings, port, http_port, DATA_NODES, replication, block_bytes)
        (temporary := folder / "tmp").mkdir()
        java = java_command(temporary, java_options, f"{settings}:{jars}")
        name_node = [*java, f"{_SERVER}.namenode.NameNode"]
        run_to_its_end("format", [*name_node, "-format", "-nonInteractive"], folder)
        servers = [stack.enter_context(server_process("namenode", name_node, folder))]
        for number in range(DATA_NODES):
            data_node = [*java, f"{_SERVER}.datanode.DataNode", *_own_settings(folder, number)]
            name = f"datanode-{number}"
            servers.append(stack.enter_context(server_process(name, data_node, folder)))
        hdfs = Hdfs(port, http_port, servers[0], servers[1:], java, folder)
        wait_for(hdfs.is_ready, servers)
        yield hdfs


def _own_settings(folder: Path, number: int) -> list[str]:
    settings = {"data.dir": str(folder / f"data-{number}")}
    settings |= {f"{kind}address": f"{LOOPBACK}:0" for kind in ("", "http.", "ipc.")}
    return [
        word for name, value in settings.items() for word in ("-D", f"dfs.datanode.{name}={value}")
    ]
