"""The workers and servers of a job, and what is needed to start them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from mrflight.config.settings import RunSettings
from mrflight.config.spec import JobSpec
from mrflight.events.recorder import Recorder
from mrflight.runtime.supervised_cluster import ClusterOptions, SupervisedCluster
from mrflight.system.signals import Interrupts

if TYPE_CHECKING:
    from mrflight.runtime.executor import Executor


JobCluster = SupervisedCluster[Any]
"""The servers of an embedded cluster."""


class JobRuntime(msgspec.Struct, frozen=True):
    """The workers and servers of a job. They end with the stack that they were opened on."""

    settings: RunSettings
    executor: Executor
    cluster: JobCluster | None
    """None on a standing cluster."""
    processes: Callable[[], Mapping[int, str]]
    """Returns the names of the job's processes on this machine, without this one, by their ids."""
    scratch: Path
    """The folder in which reduces spill, on every machine that the job runs on."""


class RuntimeOptions(msgspec.Struct, frozen=True):
    """The settings that the workers and servers of a job are started with."""

    spec: JobSpec
    folder: Path
    """The folder of the job file."""
    settings: RunSettings
    scratch: Path
    """The job's own folder on this machine."""
    interrupts: Interrupts
    events: Recorder
    owns_process: bool
    """Whether this process runs the job and nothing else, and may be forked."""
    is_direct: bool
    """Whether the job is likely to need no servers: see `is_likely_direct`."""


def cluster_options(settings: RunSettings, spill_dir: Path) -> ClusterOptions:
    """Return the options of a job's embedded cluster, which spills into ``spill_dir``."""
    return ClusterOptions(
        settings.data_servers,
        settings.memory.servers,
        spill_dir,
        settings.heartbeat_timeout_s,
    )
