"""An Apache Kafka on loopback: one broker that is its own controller (KRaft)."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.services.built import kafka_class_path
from tests.services.java import QUICK_START, java_command
from tests.services.reserved_port import LOOPBACK, reserved_port
from tests.services.server_process import ServerProcess, server_process
from tests.services.service_folder import service_folder
from tests.services.starts import run_to_its_end, wait_for
from tests.support.suite.waiting import hang_s


@dataclass(frozen=True)
class Kafka:
    """One that runs."""

    port: int
    server: ServerProcess

    @property
    def brokers(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def replicas(self) -> int:
        """How many brokers have each topic."""
        return 1

    @property
    def servers(self) -> tuple[ServerProcess, ...]:
        """The process of each broker."""
        return (self.server,)

    def topic(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Make a topic that only one test uses, and return its name."""
        from confluent_kafka.admin import NewTopic

        name = f"topic-{secrets.token_hex(6)}"
        new = NewTopic(name, partitions, self.replicas, config=dict(config or {}))
        admin = self.admin()  # its calls end with it
        admin.list_topics(timeout=hang_s())  # a call while it learns of brokers may be lost
        admin.create_topics([new])[name].result(hang_s())
        return name

    def admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.brokers, "log_level": 0})

    def producer(self, **settings: Any) -> Any:
        """Return a producer; names of settings have ``_`` for dots."""
        from confluent_kafka import Producer

        named = {name.replace("_", "."): value for name, value in settings.items()}
        return Producer(
            {"bootstrap.servers": self.brokers, "log_level": 0, "linger.ms": 5, **named}
        )

    def restart(self) -> None:
        """Start the broker again after it was killed, with what it has stored, on its port."""
        self.server.start_again()
        self.await_ready()

    def await_ready(self) -> None:
        """Wait until it can be connected to."""
        wait_for(self._is_ready, [self.server])

    def _is_ready(self) -> bool:
        socket.create_connection((LOOPBACK, self.port)).close()
        return True


SOON_BACK = {"broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500}
"""Settings of a broker that a test kills. It can register again only once its session has timed
out. A broker whose heartbeats are late by the session timeout is fenced."""


@contextmanager
def running_kafka(
    port: int = 0,
    java_options: tuple[str, ...] = QUICK_START,
    changes: Mapping[str, object] | None = None,
) -> Iterator[Kafka]:
    """One that is ready; port 0 stands for any. ``changes`` are settings such as `SOON_BACK`.

    Raises NotBuiltError, PortTakenError, StartFailedError.
    """
    jars = kafka_class_path()
    with ExitStack() as stack:
        port = stack.enter_context(reserved_port(port))
        controller_port = stack.enter_context(reserved_port())
        folder = stack.enter_context(service_folder("kafka"))
        java = java_command(folder, java_options, jars)
        settings = broker_settings(folder, port, controller_port) | dict(changes or {})
        format_log(java, folder, settings, secrets.token_urlsafe(16))
        command = [*java, "kafka.Kafka", str(folder / "server.properties")]
        server = stack.enter_context(server_process("kafka", command, folder))
        kafka = Kafka(port, server)
        kafka.await_ready()
        yield kafka


def format_log(
    java: Sequence[str], folder: Path, settings: Mapping[str, object], cluster_id: str
) -> None:
    """Write the settings of a broker into its folder, and prepare its log."""
    path = folder / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = [*java, "kafka.tools.StorageTool", "format", "-c", str(path)]
    command += [f"--cluster-id={cluster_id}"]  # an id may begin with a hyphen
    run_to_its_end("format", command, folder)


def broker_settings(folder: Path, port: int, controller_port: int) -> dict[str, object]:
    """Return the settings of a broker that is alone."""
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": folder / "log",
        "auto.create.topics.enable": "false",
        "log.retention.ms": -1,  # tests give messages old times
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
        "broker.session.timeout.ms": 60_000,  # nobody takes its place if it is slow for a while
        "num.network.threads": 2,
        "num.io.threads": 2,
        "background.threads": 2,
        # A compacted topic of a test is compacted at once. By default the cleaner's buffer alone
        # takes half of the heap.
        "log.cleaner.backoff.ms": 100,
        "log.cleaner.dedupe.buffer.size": 4 << 20,
    }
