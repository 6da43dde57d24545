"""An Apache Kafka of three brokers on loopback, each of which is a controller as well (KRaft)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.services.built import kafka_class_path
from tests.services.java import QUICK_START, java_command
from tests.services.kafka import Kafka, broker_settings, format_log
from tests.services.reserved_port import LOOPBACK, reserved_port
from tests.services.server_process import ServerProcess, server_process
from tests.services.service_folder import service_folder

NODES = 3
MIN_IN_SYNC = 2
"""So many brokers have an event before its producer is told so, with ``acks=all``."""


@dataclass(frozen=True)
class ThreeBrokers(Kafka):
    """One that runs. Its topics are on every broker."""

    others: tuple[Kafka, ...] = ()
    """The brokers beside the first one."""

    @property
    def brokers(self) -> str:
        return ",".join(f"{LOOPBACK}:{each.port}" for each in (self, *self.others))

    @property
    def replicas(self) -> int:
        return NODES

    @property
    def servers(self) -> tuple[ServerProcess, ...]:
        return (self.server, *(each.server for each in self.others))

    def await_ready(self) -> None:
        for each in self.others:
            each.await_ready()
        super().await_ready()


@contextmanager
def running_three_brokers(java_options: tuple[str, ...] = QUICK_START) -> Iterator[ThreeBrokers]:
    """One that is ready. Raises NotBuiltError, PortTakenError, StartFailedError."""
    jars = kafka_class_path()
    cluster_id = secrets.token_urlsafe(16)
    with ExitStack() as stack:
        ports = [stack.enter_context(reserved_port()) for _ in range(NODES)]
        controllers = [stack.enter_context(reserved_port()) for _ in range(NODES)]
        started = []
        for number, (port, controller) in enumerate(zip(ports, controllers, strict=True), 1):
            folder = stack.enter_context(service_folder("kafka"))
            java = java_command(folder, java_options, jars)
            changes = _of_three(number, controllers)
            settings = broker_settings(folder, port, controller) | changes
            format_log(java, folder, settings, cluster_id)
            command = [*java, "kafka.Kafka", str(folder / "server.properties")]
            server = stack.enter_context(server_process(f"kafka-{number}", command, folder))
            started.append((port, server))
        (port, server), *others = started
        kafka = ThreeBrokers(port, server, tuple(Kafka(*each) for each in others))
        kafka.await_ready()
        yield kafka


def _of_three(number: int, controllers: list[int]) -> dict[str, object]:
    """Return the settings in which a broker of three differs from one that is alone."""
    voters = [f"{each}@{LOOPBACK}:{port}" for each, port in enumerate(controllers, 1)]
    return {
        "node.id": number,
        "controller.quorum.voters": ",".join(voters),
        "min.insync.replicas": MIN_IN_SYNC,
        # Others lead soon after one was killed, and it may register again.
        "broker.session.timeout.ms": 1000,
        "broker.heartbeat.interval.ms": 250,
        "offsets.topic.replication.factor": NODES,
        "transaction.state.log.replication.factor": NODES,
        "transaction.state.log.min.isr": MIN_IN_SYNC,
        # The quorum elects another leader soon after one was killed.
        "controller.quorum.election.timeout.ms": 500,
        "controller.quorum.fetch.timeout.ms": 1000,
    }
