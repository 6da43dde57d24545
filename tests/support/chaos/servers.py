"""The servers that a run of a stream talks to: its own where it kills them, else shared ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.services.iceberg_rest import IcebergRest, running_iceberg_rest
from tests.services.kafka import SOON_BACK, Kafka, running_kafka
from tests.services.minio import Minio, running_minio
from tests.services.postgres import Postgres, running_postgres
from tests.services.server_process import ServerProcess
from tests.services.three_brokers import running_three_brokers
from tests.support.chaos.plan import BROKER, BROKERS, CATALOG, STORE, ChaosPlan

_STARTS = {
    "broker": partial(running_kafka, changes=SOON_BACK),
    "brokers": running_three_brokers,
    "minio": running_minio,
    "postgres": running_postgres,
    "rest": running_iceberg_rest,
}


@dataclass(frozen=True)
class ChaosServers:
    """Those of a run; None for what its table does not need."""

    kafka: Kafka
    minio: Minio | None = None
    postgres: Postgres | None = None
    rest: IcebergRest | None = None

    def kill(self, deed: str, whom: int) -> None:
        """Do a deed of `SERVERS`."""
        if deed == CATALOG and self.postgres is not None:
            self.postgres.kill()
            return
        for server in self._victims(deed, whom):
            server.kill()

    def start_again(self, deed: str, whom: int) -> None:
        """Start what was killed; it is there a moment later.

        To be called in a thread that stays, as its end is that of the servers.
        """
        for server in self._victims(deed, whom):
            server.start_again()

    def await_ready(self) -> None:
        """Wait until all of them answer."""
        for server in (self.kafka, self.minio, self.postgres, self.rest):
            if server is not None:
                server.await_ready()

    def _victims(self, deed: str, whom: int) -> list[ServerProcess]:
        brokers = self.kafka.servers
        if deed == BROKER:
            return [brokers[0]]
        if deed == BROKERS:
            return [each for number, each in enumerate(brokers) if number != whom % len(brokers)]
        server = self.minio if deed == STORE else self.postgres or self.rest
        assert server is not None, deed
        return [server.server]


def needed(plan: ChaosPlan) -> set[str]:
    """Return the names of the servers of a run."""
    names = {"brokers" if BROKERS in plan.kills else "broker"}
    names |= {"minio"} if plan.place.store == "s3" else set()
    return names | ({plan.place.catalog} & {"postgres", "rest"})


def killed(plan: ChaosPlan) -> set[str]:
    """Return the names of the servers that a run kills."""
    names = {BROKER: "broker", BROKERS: "brokers", STORE: "minio", CATALOG: plan.place.catalog}
    return {names[deed] for deed in plan.kills}


@contextmanager
def shared_servers(plans: Iterable[ChaosPlan]) -> Iterator[dict[str, Any]]:
    """Start one of each server that runs can share, and yield them by their names."""
    names = {name for plan in plans for name in needed(plan) - killed(plan)}
    with ExitStack() as stack:
        yield {name: stack.enter_context(_STARTS[name]()) for name in sorted(names)}


@contextmanager
def servers_of(plan: ChaosPlan, shared: dict[str, Any]) -> Iterator[ChaosServers]:
    """Yield the servers of a run. Those that it kills are started for it, and end with it."""
    with ExitStack() as stack:
        own = killed(plan)
        found = {
            name: stack.enter_context(_STARTS[name]())
            if name in own or name not in shared
            else shared[name]
            for name in sorted(needed(plan))
        }
        kafka = found.pop("broker", None) or found.pop("brokers")
        yield ChaosServers(kafka, **found)
