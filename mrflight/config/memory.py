"""How a job's memory is divided over its parts: a pure function of one setting.

Of the whole, every process first gets what it weighs empty. Of the rest the
data servers get one half, which is what they hold before they spill, and the
workers the other, each for the task that it runs:

- a map task holds a few batches of its source and what the shuffle writer has
  not sent yet;
- a reduce task holds rows of its partition and what its aggregation makes of
  them, and the rows that wait to be encoded.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError
from mrflight.system.free_memory import free_memory
from mrflight.units import format_bytes, parse_bytes

MIB = 2**20

_DRIVER_BYTES = 110 * MIB
"""The driver and the fork server, whose pages the others share: measured with PSS."""

_WORKER_BYTES = 64 * MIB
"""An empty worker, and the batches that its source reads: measured with PSS."""

_SERVER_BYTES = 32 * MIB
"""An empty data server, and what is on its way through gRPC."""

_SQL_BYTES = 54 * MIB
"""DataFusion in the driver: 41 MiB of it are code, whose pages the workers share."""

_SQL_WORKER_BYTES = 13 * MIB
"""DataFusion in a worker, beside that: its tables, and what a session begins with."""

_RAY_BYTES = 110 * MIB
"""The process that speaks to Ray, and what a metadata server weighs more as an actor: PSS."""

_RAY_PROCESS_BYTES = 50 * MIB
"""What Ray weighs in a worker, or in a data server: 79 and 68 MiB of PSS where nothing is done."""

_LEAST_SHARE_BYTES = 64 * MIB
"""Of a worker's task, or of a data server: with less, blocks and pieces become too small."""

_MOST_WRITER_BYTES = 128 * MIB
"""Of a shuffle writer: more makes its blocks no better, see experiments/transport.py."""

_MOST_COMBINER_BYTES = 64 * MIB
"""Of a combiner: what does not shrink in this shrinks in the reducer."""


class MemoryPlan(msgspec.Struct, frozen=True):
    """What each part may hold, bytes."""

    total: int
    servers: int
    """All data servers of an embedded cluster together."""
    writer: int
    """One shuffle writer."""
    combiner: int
    """One map task, for the groups that it combines its rows to."""
    reducer: int
    """One reduce task, for its rows and groups."""
    encoder: int
    """One reduce task, for the rows that wait to be encoded."""
    rewriter: int
    """One rewrite task of a merge. It comes when the data servers hold nothing any more."""

    def halved(self) -> MemoryPlan:
        """For a task that reduces and maps, one half for each."""
        return replace(
            self, writer=self.writer // 2, combiner=self.combiner // 2, reducer=self.reducer // 2
        )


def plan_memory(
    spec: JobSpec, workers: int, data_servers: int, default: int | None = None
) -> MemoryPlan:
    """The parts of a job's memory; JobFileError where what it sets is no size, or too little.

    ``default`` is the whole where it sets nothing: `default_memory` unless told.
    """
    servers = _size(spec.shuffle.memory, "shuffle.memory") if data_servers else None
    total = _size(spec.cluster.memory, "cluster.memory")
    with_sql = spec.has_sql
    on_ray = spec.cluster.executor == "ray"
    least = least_memory(workers, data_servers, servers, with_sql=with_sql, on_ray=on_ray)
    if total is None:
        total = max(default_memory() if default is None else default, least)
    if total < least:
        raise JobFileError(
            f"cluster.memory: {format_bytes(total)} is too little for {workers} workers and "
            f"{data_servers} data servers; give {format_bytes(least)} or more, or set fewer "
            "cluster.workers"
        )
    return divide_memory(total, workers, data_servers, servers, with_sql=with_sql, on_ray=on_ray)


def divide_memory(
    total: int,
    workers: int,
    data_servers: int,
    servers: int | None = None,
    *,
    with_sql: bool = False,
    on_ray: bool = False,
) -> MemoryPlan:
    """The parts of ``total`` bytes, which are enough.

    ``data_servers`` are those of an embedded cluster, 0 on a standing one;
    ``servers`` is what they get together, where that is set. ``with_sql``: DataFusion is loaded;
    ``on_ray``: Ray is.
    """
    rest = total - _fixed_bytes(workers, data_servers, with_sql, on_ray)
    if servers is None:
        servers = min(rest // 2, rest - workers * _LEAST_SHARE_BYTES) if data_servers else 0
    each = (rest - servers) // workers
    return MemoryPlan(
        total=total,
        servers=servers,
        writer=min(each // 2, _MOST_WRITER_BYTES),
        combiner=min(each // 4, _MOST_COMBINER_BYTES),
        reducer=each // 2,
        encoder=each // 4,
        rewriter=rest // workers // 2,
    )


def least_memory(
    workers: int,
    data_servers: int,
    servers: int | None = None,
    *,
    with_sql: bool = False,
    on_ray: bool = False,
) -> int:
    """With how much a job can be run at all, bytes."""
    if servers is None:
        servers = data_servers * _LEAST_SHARE_BYTES
    return (
        _fixed_bytes(workers, data_servers, with_sql, on_ray)
        + workers * _LEAST_SHARE_BYTES
        + servers
    )


def _fixed_bytes(workers: int, data_servers: int, with_sql: bool, on_ray: bool) -> int:
    ray = _RAY_BYTES + (workers + data_servers) * _RAY_PROCESS_BYTES if on_ray else 0
    sql = _SQL_BYTES + workers * _SQL_WORKER_BYTES if with_sql else 0
    return _DRIVER_BYTES + workers * _WORKER_BYTES + data_servers * _SERVER_BYTES + sql + ray


def _size(text: str | None, key: str) -> int | None:
    if text is None:
        return None
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise JobFileError(f"{key}: {error}") from error


def default_memory() -> int:
    """Half of what the machine, or the container that this runs in, has free now, bytes."""
    return free_memory() // 2
