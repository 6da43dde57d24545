"""What a job's stores need before anything is started or looked at."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError
from mrflight.storage import hopsfs
from mrflight.storage.option_checks import check_commits, check_endpoint, check_options


def prepare_storage(spec: JobSpec, folder: Path, *, with_output: bool = True) -> None:
    """Set what the stores' clients read as they are loaded, here and in the job's processes.

    ``folder`` is the job file's. Raises as `check_options`, `check_endpoint`, `check_commits`
    and `hopsfs.prepare` do, and JobFileError where workers would not have it.
    """
    paths = spec.paths if with_output else spec.paths[:-1]
    check_options(spec.storage, paths)
    check_endpoint(spec.storage, paths, os.environ)
    if with_output:
        check_commits(spec.storage, spec.output.table, os.environ)
    _check_workers_have_it(spec, paths)
    hopsfs.prepare(spec.storage, paths, folder)


def _check_workers_have_it(spec: JobSpec, paths: Sequence[str]) -> None:
    """The workers of a Ray that is there already have its environment, and not the job's."""
    address = spec.cluster.ray_address
    if spec.cluster.executor != "ray" or address is None:
        return
    for key, variable in hopsfs.VARIABLES.items():
        # This process's client would take the certificates from there, and theirs go without.
        is_around = key == "pem_dir" and hopsfs.has_environment_pems(paths)
        if key in spec.storage or is_around:
            without = "without TLS" if key == "pem_dir" else "without it"
            raise JobFileError(
                f"storage.{key} (or {variable} of the environment) does not reach the workers of "
                f"the Ray at {address!r}, which was started without it: they would connect "
                f"{without}; leave out cluster.ray_address, so that the job starts a Ray of its "
                'own, or take cluster.executor = "local"'
            )
