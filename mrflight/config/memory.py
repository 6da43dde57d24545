"""Divides the memory of a job over its processes.

First, every process gets what it needs when it does nothing. The data servers get one half of the
rest, which they may hold before they spill. The workers get the other half, each for the task that
it runs:

- a map task holds a few batches of its source, and the rows that the shuffle writer has not sent;
- a reduce task holds rows of its partition, the groups of its aggregation, and the rows that wait
  to be encoded.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError
from mrflight.system.free_memory import free_memory
from mrflight.units import format_bytes, format_count, parse_bytes

MIB = 2**20

_DRIVER_BYTES = 110 * MIB
"""The driver and the fork server, whose pages the others share (PSS, measured)."""

_WORKER_BYTES = 64 * MIB
"""An idle worker, and the batches that its source reads (PSS, measured)."""

_SERVER_BYTES = 32 * MIB
"""An empty data server, and the messages that are in gRPC."""

_SQL_BYTES = 54 * MIB
"""DataFusion in the driver. 41 MiB of it is code, whose pages the workers share."""

_SQL_WORKER_BYTES = 13 * MIB
"""DataFusion in a worker, in addition: its tables, and a new session."""

_RAY_BYTES = 110 * MIB
"""The gateway process to Ray, and what a metadata server takes more as an actor (PSS)."""

_RAY_PROCESS_BYTES = 50 * MIB
"""Ray itself in a worker or a data server. Idle ones were measured with 79 and 68 MiB of PSS."""

_READER_BYTES = 64 * MIB
"""What a caller's process takes while it reads the rows of a result, in addition: the messages that
are in gRPC, and the blocks that are read ahead (PSS, measured with blocks of 2 MiB)."""

_MIN_BUDGET_BYTES = 64 * MIB
"""The least for a worker's task or a data server. With less, blocks and spill files are too small.
"""

_MAX_WRITER_BYTES = 128 * MIB
"""The most for a shuffle writer. With more, blocks do not get better: see BLOCK_BYTES."""

_MAX_COMBINER_BYTES = 64 * MIB
"""The most for a combiner. Groups that do not fit are aggregated by the reducer."""


class Processes(msgspec.Struct, frozen=True):
    """The processes of a job, and what is loaded in them."""

    workers: int
    data_servers: int
    """Those of an embedded cluster; 0 on a standing one."""
    with_sql: bool = False
    """Whether DataFusion is loaded."""
    on_ray: bool = False
    to_caller: bool = False
    """Whether the caller's process reads the rows of the result."""

    @classmethod
    def of(cls, spec: JobSpec, workers: int, data_servers: int) -> Processes:
        """Return those of a job with so many workers and servers."""
        return cls(
            workers,
            data_servers,
            with_sql=spec.has_sql,
            on_ray=spec.cluster.executor == "ray",
            to_caller=not spec.has_output,
        )

    def __str__(self) -> str:
        servers = format_count(self.data_servers, "data server")
        return f"{format_count(self.workers, 'worker')} and {servers}"

    @property
    def empty_bytes(self) -> int:
        """The bytes of all processes before they hold rows."""
        workers, servers = self.workers, self.data_servers
        size = _DRIVER_BYTES + workers * _WORKER_BYTES + servers * _SERVER_BYTES
        if self.with_sql:
            size += _SQL_BYTES + workers * _SQL_WORKER_BYTES
        if self.on_ray:
            size += _RAY_BYTES + (workers + servers) * _RAY_PROCESS_BYTES
        return size + _READER_BYTES * self.to_caller


class MemoryPlan(msgspec.Struct, frozen=True):
    """How many bytes each part of a job may hold."""

    total: int
    servers: int
    """The bytes of all data servers of an embedded cluster together."""
    writer: int
    """The bytes of one shuffle writer."""
    combiner: int
    """The bytes of the groups of one map task that combines its rows."""
    reducer: int
    """The bytes of the rows and groups of one reduce task."""
    encoder: int
    """The bytes of the rows of one reduce task that wait to be encoded."""
    rewriter: int
    """The bytes of one rewrite task of a merge, which runs when the data servers are empty."""

    def halved(self) -> MemoryPlan:
        """Return the plan of a task that reduces and maps, and gets half of the memory for each."""
        return replace(
            self, writer=self.writer // 2, combiner=self.combiner // 2, reducer=self.reducer // 2
        )


def plan_memory(
    spec: JobSpec, workers: int, data_servers: int, default: int | None = None
) -> MemoryPlan:
    """Return how a job's memory is divided.

    ``default`` is the total if the job sets none; without it `default_memory` is. Raises
    JobFileError if a setting is not a size, or too small.
    """
    processes = Processes.of(spec, workers, data_servers)
    servers = _size(spec.shuffle.memory, "shuffle.memory") if data_servers else None
    total = _size(spec.cluster.memory, "cluster.memory")
    min_bytes = min_memory(processes, servers)
    if total is None:
        total = max(default_memory() if default is None else default, min_bytes)
    if total < min_bytes:
        raise JobFileError(
            f"cluster.memory: {format_bytes(total)} is too little for {processes}; give "
            f"{format_bytes(min_bytes)} or more, or set fewer cluster.workers"
        )
    return divide_memory(total, processes, servers)


def divide_memory(total: int, processes: Processes, servers: int | None = None) -> MemoryPlan:
    """Divide ``total`` bytes, which must be at least `min_memory`.

    ``servers`` is what the data servers get together, if that is set.
    """
    workers = processes.workers
    rest = total - processes.empty_bytes
    if servers is None:
        least = workers * _MIN_BUDGET_BYTES
        servers = min(rest // 2, rest - least) if processes.data_servers else 0
    each = (rest - servers) // workers
    return MemoryPlan(
        total=total,
        servers=servers,
        writer=min(each // 2, _MAX_WRITER_BYTES),
        combiner=min(each // 4, _MAX_COMBINER_BYTES),
        reducer=each // 2,
        encoder=each // 4,
        rewriter=rest // workers // 2,
    )


def min_memory(processes: Processes, servers: int | None = None) -> int:
    """Return the least memory, in bytes, that a job can run with."""
    if servers is None:
        servers = processes.data_servers * _MIN_BUDGET_BYTES
    return processes.empty_bytes + processes.workers * _MIN_BUDGET_BYTES + servers


def _size(text: str | None, key: str) -> int | None:
    if text is None:
        return None
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise JobFileError(f"{key}: {error}") from error


def default_memory() -> int:
    """Return half of the memory that the machine, or this container, has free now, in bytes."""
    return free_memory() // 2
