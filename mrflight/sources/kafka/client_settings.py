"""The settings with which librdkafka reads the topics of an input."""

from __future__ import annotations

import msgspec

from mrflight.config.input_spec import InputSpec
from mrflight.config.secret_reference import resolved
from mrflight.units import format_bytes

DEFAULT_MEMORY_BYTES = 32 << 20
"""What consumers of an input may hold in a process by default."""

MAX_KEPT = 4
"""The consumers that a process keeps for one input; see `mrflight.sources.kafka.consumer_pool`."""

_MIN_FETCH_BYTES = 256 << 10
_MAX_FETCH_BYTES = 8 << 20

_DEFAULTS = {
    "client.id": "mrflight",
    # A broker that comes back is found within a second. The default is ten.
    "reconnect.backoff.ms": "50",
    "reconnect.backoff.max.ms": "1000",
    "log_level": "0",  # errors are raised, with what to do, and librdkafka prints to stderr
}
"""Settings that the user may change."""


class ClientSettings(msgspec.Struct, frozen=True):
    """Where the cluster is and how to log in; secrets are references until they are used."""

    input: str
    """The name of the input, for messages."""
    brokers: str
    client: tuple[tuple[str, str], ...] = ()
    """The settings of ``[inputs.NAME.client]``."""
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    """What the consumers of a process may hold."""

    @property
    def key(self) -> str:
        return f"inputs.{self.input}"

    def of_admin(self) -> dict[str, str]:
        """Return the settings of a client that only asks; raises JobFileError for a secret."""
        client = resolved(dict(self.client), f"{self.key}.client")
        return {**_DEFAULTS, **client, "bootstrap.servers": self.brokers}

    def of_consumer(self) -> dict[str, str]:
        """Return the settings of a consumer; raises JobFileError for a secret.

        The queues of librdkafka of all consumers that a process keeps hold at most about
        ``memory_bytes``; one more fetch may exceed each of them.
        """
        fetch_bytes = min(max(self.memory_bytes // 8, _MIN_FETCH_BYTES), _MAX_FETCH_BYTES)
        return {
            **self.of_admin(),
            # No group is joined: librdkafka only wants a name.
            "group.id": f"mrflight.{self.input}",
            "enable.auto.commit": "false",
            "enable.auto.offset.store": "false",
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": "true",
            "queued.min.messages": "10000000",  # only the bytes limit the queue
            "queued.max.messages.kbytes": str(max(1, self.memory_bytes // MAX_KEPT >> 10)),
            "fetch.message.max.bytes": str(fetch_bytes),
            "fetch.max.bytes": str(max(fetch_bytes, _receive_bytes(dict(self.client)))),
            # A new partition is fetched once the request for the one before is answered.
            "fetch.wait.max.ms": "50",
            "fetch.queue.backoff.ms": "10",
        }

    @property
    def batch_bytes(self) -> int:
        """The bytes of messages that become one batch."""
        return min(max(self.memory_bytes // 8, 64 << 10), 4 << 20)

    def __str__(self) -> str:
        return f"{self.brokers} ({format_bytes(self.memory_bytes)})"


def client_settings(
    name: str, spec: InputSpec, memory_bytes: int = DEFAULT_MEMORY_BYTES
) -> ClientSettings:
    """Return the settings of an input of messages."""
    assert spec.kafka is not None, name
    return ClientSettings(name, spec.kafka, tuple(spec.client.items()), memory_bytes)


def _receive_bytes(client: dict[str, str]) -> int:
    """Return the least of ``fetch.max.bytes`` that librdkafka takes with these settings."""
    return int(client.get("message.max.bytes", 1_000_000))
