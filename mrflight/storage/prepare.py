"""Prepare a job's stores before anything is started or read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError
from mrflight.storage import hopsfs
from mrflight.storage.option_checks import check_commits, check_endpoint, check_options


def prepare_storage(spec: JobSpec, folder: Path, *, with_output: bool = True) -> None:
    """Check the storage options, and set what the clients read from the environment.

    The job's processes inherit it. ``folder`` is that of the job file. Raises what `check_options`,
    `check_endpoint`, `check_commits` and `hopsfs.prepare` raise, and JobFileError if the settings
    would not reach the workers.
    """
    paths = spec.paths if with_output else spec.paths[:-1]
    check_options(spec.storage, paths)
    check_endpoint(spec.storage, paths, os.environ)
    if with_output:
        check_commits(spec.storage, spec.output.table, os.environ)
    _check_reaches_workers(spec, paths)
    hopsfs.prepare(spec.storage, paths, folder)


def _check_reaches_workers(spec: JobSpec, paths: Sequence[str]) -> None:
    """Raise JobFileError if workers of a running Ray, with its environment, lack a setting."""
    address = spec.cluster.ray_address
    if spec.cluster.executor != "ray" or address is None:
        return
    for key, variable in hopsfs.VARIABLES.items():
        # This process's client would find the certificates, and the workers' clients would not.
        is_in_environment = key == "pem_dir" and hopsfs.has_environment_pems(paths)
        if key in spec.storage or is_in_environment:
            without = "without TLS" if key == "pem_dir" else "without it"
            raise JobFileError(
                f"storage.{key} (or {variable} in the environment) does not reach the workers of "
                f"the Ray at {address!r}, which was started without it: they would connect "
                f"{without}; remove cluster.ray_address, so that the job starts its own Ray, or "
                'set cluster.executor = "local"'
            )
