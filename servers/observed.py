"""What servers tell about themselves: whether they take work, and their metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mrflight.page.measured import Measured
from mrflight.shuffle.metadata.cluster_overview import ClusterOverview
from mrflight.shuffle.metadata.metadata_totals import MetadataTotals
from mrflight.shuffle.store.block_store import BlockStore

from .cluster_log import ClusterLog
from .membership import Membership
from .rotating import RotatingServer

if TYPE_CHECKING:  # a server without an HTTP port loads no pages
    from mrflight.page.messages import Source

    from .logs import Logs


class ObservedData:
    """A data server."""

    def __init__(
        self,
        store: BlockStore,
        membership: Membership,
        server: RotatingServer,
        logs: Logs | None = None,
    ) -> None:
        self._logs = logs
        self._server = server
        self._store = store
        self._membership = membership

    def not_ready(self) -> str:
        return self._membership.why_no_member()

    def page(self) -> None:
        """A data server has none: that of the metadata server shows all of them."""

    def measured(self) -> Iterator[Measured]:
        yield from _certificate(self._server)
        yield from self._held()
        yield from self._done()
        if self._logs is not None:
            yield from self._appended(self._logs)

    def _held(self) -> Iterator[Measured]:
        stats = self._store.stats()
        yield Measured("data_shuffles", "Shuffles of which blocks are held.", stats.shuffles)
        yield Measured("data_blocks", "Blocks that are held, in memory and on disk.", stats.blocks)
        yield Measured("data_stored_bytes", "Bytes of these blocks.", stats.size_bytes)
        yield Measured(
            "data_memory_bytes", "Memory that blocks take of the budget.", stats.memory_bytes
        )
        yield Measured(
            "data_memory_budget_bytes",
            "Memory that blocks may take: --memory.",
            self._store.budget_bytes,
        )
        yield Measured("data_disk_bytes", "Bytes of blocks on disk.", stats.spilled_bytes)
        yield Measured(
            "data_disk_dead_bytes",
            "Bytes on disk of discarded attempts, until their shuffle is dropped.",
            stats.dead_bytes,
        )
        yield Measured(
            "data_member", "1 if partitions are placed on this server.", float(not self.not_ready())
        )

    def _done(self) -> Iterator[Measured]:
        totals = self._store.totals()
        for name, about, value in (
            ("data_put_blocks", "Blocks that were stored.", totals.put_blocks),
            ("data_put_bytes", "Bytes of blocks that were stored.", totals.put_bytes),
            ("data_read_blocks", "Blocks that readers took.", totals.read_blocks),
            ("data_read_bytes", "Bytes of blocks that readers took.", totals.read_bytes),
            ("data_spilled_bytes", "Bytes of blocks that were spilled.", totals.spilled_bytes),
            ("data_put_wait_seconds", "Time for which puts waited for memory.", totals.waited_s),
        ):
            yield Measured(name, about, value, kind="counter")

    def _appended(self, logs: Logs) -> Iterator[Measured]:
        totals = logs.totals
        size_bytes = logs.size_bytes()
        yield Measured("log_stored_bytes", "Bytes of the event logs that are open.", size_bytes)
        for name, about, value in (
            ("log_appends", "Batches of event logs that were acknowledged.", totals.appends),
            ("log_rows", "Rows of these batches.", totals.rows),
            ("log_bytes", "Bytes of these batches in their segments.", totals.bytes),
            ("log_syncs", "Syncs that made them durable, each of a group.", totals.syncs),
        ):
            yield Measured(name, about, value, kind="counter")


class ObservedMetadata:
    """A metadata server."""

    def __init__(
        self,
        overview: ClusterOverview,
        totals: MetadataTotals,
        log: ClusterLog,
        server: RotatingServer,
    ) -> None:
        self._server = server
        self._overview = overview
        self._totals = totals
        self._log = log

    def not_ready(self) -> str:
        return ""  # it answers from when it listens until it ends

    def page(self) -> Source:
        from .cluster_page import ClusterPage

        return ClusterPage(self._overview, self._totals, self._log)

    def measured(self) -> Iterator[Measured]:
        yield from _certificate(self._server)
        yield from self._known()
        yield from self._done()

    def _known(self) -> Iterator[Measured]:
        servers, shuffles = self._overview.servers(), self._overview.shuffles()
        yield Measured("metadata_data_servers", "Data servers that are registered.", len(servers))
        yield Measured(
            "metadata_stored_bytes",
            "Bytes of blocks that data servers hold, with replicas, by their heartbeats.",
            sum(server.stored_bytes for server in servers),
        )
        yield Measured("metadata_shuffles", "Shuffles.", len(shuffles))
        yield Measured(
            "metadata_partitions",
            "Partitions of all shuffles.",
            sum(shuffle.partitions for shuffle in shuffles),
        )
        yield Measured(
            "metadata_rows",
            "Rows that are committed in all shuffles.",
            sum(shuffle.rows for shuffle in shuffles),
        )
        yield Measured(
            "metadata_committed_bytes",
            "Bytes of blocks that are committed in all shuffles, without replicas.",
            sum(shuffle.size_bytes for shuffle in shuffles),
        )

    def _done(self) -> Iterator[Measured]:
        totals = self._totals
        for name, about, value in (
            ("servers_joined", "Data servers that have registered.", totals.servers_joined),
            (
                "servers_left",
                "Data servers that have stopped or were declared lost.",
                totals.servers_left,
            ),
            ("shuffles_created", "Shuffles that were created.", totals.shuffles_created),
            ("shuffles_dropped", "Shuffles that were dropped.", totals.shuffles_dropped),
            ("maps_committed", "Map attempts that were committed.", totals.maps_committed),
            (
                "partitions_lost",
                "Partitions whose rows were lost with a server.",
                totals.partitions_lost,
            ),
        ):
            yield Measured(f"metadata_{name}", about, value, kind="counter")


def _certificate(server: RotatingServer) -> Iterator[Measured]:
    if (ends_at := server.certificate_ends_at) is not None:
        yield Measured(
            "certificate_ends_timestamp_seconds",
            "When the certificate of the server ends, in seconds since 1970.",
            ends_at,
        )
