"""Which stage of a job a sampled stack belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum


class Stage(StrEnum):
    """What processor time is spent for, in the order of a job."""

    START = "start"
    READ = "read"
    DECODE = "decode"
    MAP = "map"
    COMBINE = "combine"
    PLACE = "hash and place"
    ENCODE_BLOCKS = "encode blocks"
    SEND = "send"
    RECEIVE = "receive"
    STORE = "store"
    FETCH = "fetch"
    DECODE_BLOCKS = "decode blocks"
    REDUCE = "reduce"
    ENCODE_PARTS = "encode part files"
    WRITE = "write"
    COMMIT = "commit"
    SCHEDULE = "schedule"
    UNKNOWN = "unattributed"


class Role(StrEnum):
    """What a process is for."""

    DRIVER = "driver"
    FORK_SERVER = "fork server"
    WORKER = "worker"
    DATA = "data server"
    METADATA = "metadata server"


_ROLES = {
    "mrflight.runtime.worker:work": Role.WORKER,
    "mrflight.servers.data:serve": Role.DATA,
    "mrflight.servers.metadata:serve": Role.METADATA,
    "mrflight.system.fork_server.main:serve": Role.FORK_SERVER,
}
"""The frames that tell the role. Children of the fork server have its frames as well."""

_STARTING = ("importlib._bootstrap", "mrflight.planner.", "mrflight.runtime.start")
"""What is done below these is part of the start, whatever it is."""

_Rules = dict[str, Stage]
"""Stages by ``module:function``, by module, or by a package, which ends in a point.

The innermost frame that has one counts, and of several for it the most special.
"""

_WORKER: _Rules = {
    "mrflight.sources.": Stage.READ,
    "mrflight.sources.csv_decoder": Stage.DECODE,
    "mrflight.sources.csv_numbers": Stage.DECODE,
    "mrflight.sources.csv_records": Stage.DECODE,
    "mrflight.sources.csv_short_rows": Stage.DECODE,
    "mrflight.sources.plain_csv_decoder": Stage.DECODE,
    "mrflight.compute.plain_csv": Stage.DECODE,
    "mrflight.sources.json_decoder": Stage.DECODE,
    "mrflight.sources.packed_reader": Stage.DECODE,
    "mrflight.sources.parquet_source": Stage.DECODE,
    "mrflight.sources.arrow_source": Stage.DECODE,
    "mrflight.sources.schema_check": Stage.DECODE,
    "mrflight.sources.chunk:has_lines": Stage.DECODE,
    "mrflight.sources.chunk:has": Stage.DECODE,
    "mrflight.tasks.mapper:_map": Stage.MAP,
    "mrflight.tasks.mapper:_validate_new_columns": Stage.MAP,
    "mrflight.compute.sql.": Stage.MAP,
    "mrflight.tasks.broadcast_join": Stage.MAP,
    "mrflight.tasks.map_output": Stage.MAP,
    "mrflight.tasks.map_task": Stage.MAP,
    "mrflight.tasks.operators.combiner": Stage.COMBINE,
    "mrflight.tasks.sample_task": Stage.PLACE,
    "mrflight.tasks.operators.key_sample": Stage.PLACE,
    "mrflight.shuffle.client.partitioners": Stage.PLACE,
    "mrflight.shuffle.client.range_partitioner": Stage.PLACE,
    "mrflight.shuffle.client.partition_buffers": Stage.PLACE,
    "mrflight.shuffle.client.writer": Stage.PLACE,
    "mrflight.shuffle.wire.encoder": Stage.ENCODE_BLOCKS,
    "mrflight.shuffle.wire.block:encode_block": Stage.ENCODE_BLOCKS,
    "mrflight.shuffle.wire.block:to_wire": Stage.SEND,
    "mrflight.shuffle.client.block_sender": Stage.SEND,
    "mrflight.shuffle.client.put_streams": Stage.SEND,
    "mrflight.shuffle.client.writer:_request_commit": Stage.SCHEDULE,
    "mrflight.shuffle.client.writer:abort": Stage.SCHEDULE,
    "mrflight.shuffle.client.shuffle": Stage.SCHEDULE,
    "mrflight.shuffle.client.metadata_client": Stage.SCHEDULE,
    "mrflight.shuffle.client.reader": Stage.FETCH,
    "mrflight.shuffle.wire.block:decode_block": Stage.DECODE_BLOCKS,
    "mrflight.shuffle.wire.block:from_wire": Stage.DECODE_BLOCKS,
    "mrflight.tasks.stage_rows": Stage.REDUCE,
    "mrflight.tasks.reduce_task": Stage.REDUCE,
    "mrflight.tasks.direct_task": Stage.REDUCE,
    "mrflight.tasks.reducer": Stage.REDUCE,
    "mrflight.tasks.operators.": Stage.REDUCE,
    "mrflight.tasks.part_files": Stage.ENCODE_PARTS,
    "mrflight.sinks.parts.": Stage.ENCODE_PARTS,
    "mrflight.sinks.parts.open_files:_close": Stage.WRITE,
    "mrflight.storage.": Stage.WRITE,
    "mrflight.storage.disk:open_input": Stage.READ,
    "mrflight.runtime.calls": Stage.SCHEDULE,
    "mrflight.runtime.worker:before": Stage.SCHEDULE,
    "mrflight.runtime.worker": Stage.START,
    "mrflight.system.parent_watch": Stage.SCHEDULE,
    "mrflight.system.fork_server.": Stage.START,
}
_DRIVER: _Rules = {
    "mrflight.planner.": Stage.START,
    "mrflight.sources.": Stage.START,
    "mrflight.runtime.": Stage.START,
    "mrflight.runtime.local.executor": Stage.SCHEDULE,
    "mrflight.runtime.local.worker_process": Stage.SCHEDULE,
    "mrflight.runtime.local.worker_output": Stage.SCHEDULE,
    "mrflight.runtime.liveness_probe": Stage.SCHEDULE,
    "mrflight.runtime.supervised_cluster": Stage.SCHEDULE,
    "mrflight.scheduler.": Stage.SCHEDULE,
    "mrflight.scheduler.job_run": Stage.START,
    "mrflight.scheduler.job:_analyze": Stage.START,
    "mrflight.scheduler.job:_commit": Stage.COMMIT,
    "mrflight.sinks.": Stage.COMMIT,
    "mrflight.shuffle.": Stage.SCHEDULE,
    "mrflight.system.memory_sampler": Stage.SCHEDULE,
    "mrflight.system.supervisor": Stage.SCHEDULE,
    "mrflight.system.progress.": Stage.SCHEDULE,
    "": Stage.START,
}
_DATA: _Rules = {
    "mrflight.servers.data:do_put": Stage.RECEIVE,
    "mrflight.servers.block_streams": Stage.RECEIVE,
    "mrflight.servers.data:do_get": Stage.FETCH,
    "mrflight.servers.data:_messages": Stage.FETCH,
    "mrflight.servers.data:<genexpr>": Stage.FETCH,
    "mrflight.servers.block_streams:plain_rows": Stage.FETCH,
    "mrflight.shuffle.wire.flight_errors:answer_stream": Stage.FETCH,
    "mrflight.shuffle.store.": Stage.STORE,
    "mrflight.servers.data:serving": Stage.START,
    "mrflight.servers.": Stage.SCHEDULE,
    "mrflight.system.segment_channel:_accept": Stage.SCHEDULE,
    "": Stage.START,
}
_METADATA: _Rules = {
    "mrflight.servers.metadata:serving": Stage.START,
    "mrflight.servers.": Stage.SCHEDULE,
    "mrflight.shuffle.": Stage.SCHEDULE,
    "": Stage.START,
}
_RULES = {
    Role.DRIVER: _DRIVER,
    Role.FORK_SERVER: {"": Stage.START},
    Role.WORKER: _WORKER,
    Role.DATA: _DATA,
    Role.METADATA: _METADATA,
}

_BETWEEN = {
    Role.WORKER: (Stage.SEND, Stage.FETCH),
    Role.DATA: (Stage.RECEIVE, Stage.FETCH),
}
"""Threads of gRPC work for the one of these that the process did last."""

_GRPC = ("grpc", "event_engine", "lifeguard", "default-executo", "resolver-execut")


_FORKED = "mrflight.system.fork_server.main:_run_child"


def own_frames(stack: Sequence[str]) -> Sequence[str]:
    """Return the frames without those of the process from which this one was forked."""
    return stack[: stack.index(_FORKED) + 1] if _FORKED in stack else stack


def named_frames() -> set[str]:
    """Return the functions, modules and packages that have a rule."""
    return {*_ROLES, *(name for rules in _RULES.values() for name in rules if name)}


def role_of(stacks: Iterable[Sequence[str]]) -> Role:
    """Return what the process of these stacks is for."""
    known = {frame for stack in stacks for frame in stack}
    return next((role for frame, role in _ROLES.items() if frame in known), Role.DRIVER)


def stage_of(stack: Sequence[str], role: Role) -> Stage:
    """Return the stage of a stack, the innermost frame first."""
    if any(frame.startswith(_STARTING) for frame in stack):
        return Stage.START
    rules = _RULES[role]
    found = (stage for frame in stack if (stage := _rule(frame, rules)) is not None)
    return next(found, rules.get("", Stage.UNKNOWN))


def _rule(frame: str, rules: _Rules) -> Stage | None:
    module = frame.partition(":")[0]
    names = [frame, module]
    while "." in module:
        module = module.rpartition(".")[0]
        names.append(f"{module}.")
    return next((rules[name] for name in names if name in rules), None)


class Threads:
    """Attributes the threads of a process that have no Python frames."""

    def __init__(self, role: Role) -> None:
        self._role = role
        self._moving: Stage | None = None

    def see(self, stage: Stage) -> None:
        """Note what a thread with frames does."""
        if stage in _BETWEEN.get(self._role, ()):
            self._moving = stage

    def stage_of(self, name: str, main: Sequence[str]) -> Stage:
        """Return the stage of a thread of this name, while the main thread has a stack."""
        if name.startswith(_GRPC):
            if self._moving is not None:
                return self._moving
            return Stage.START if self._role in _BETWEEN else Stage.SCHEDULE
        return stage_of(main, self._role)
