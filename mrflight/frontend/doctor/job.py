"""What a job needs of its machine: its stores, its memory, its folders."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from mrflight.config.settings import RunSettings
from mrflight.config.spec import JobSpec
from mrflight.frontend.doctor.certificates import certificate_files
from mrflight.frontend.doctor.clock import clock_by_http
from mrflight.frontend.doctor.cluster import cluster
from mrflight.frontend.doctor.finding import Finding, checked
from mrflight.frontend.doctor.machine import memory_of_job
from mrflight.planner.explain import explain
from mrflight.storage import Location, locate
from mrflight.storage.certificates import CA_CHAIN, CLIENT_CERTIFICATE
from mrflight.storage.failures import read_failure
from mrflight.storage.option_checks import prepare_storage
from mrflight.storage.option_names import BUCKETS, ENDPOINT, canonical, scheme_of
from mrflight.system.free_memory import free_memory

_PATTERN = re.compile(r"[*?\[]")


def job(spec: JobSpec, folder: Path, timeout_s: float) -> Iterator[Finding]:
    """Yield what was found of a job: its cluster, each store that it names, and then its plan.

    The plan reads the schemas of the inputs, imports the user's functions, and looks at the output,
    so it finds whatever would keep the job from its first task.
    """
    prepared = checked("settings", partial(_prepare, spec, folder), timeout_s)
    yield from prepared
    if any(finding.state == "problem" for finding in prepared):
        return
    if spec.cluster.metadata is not None:
        client = RunSettings.of(spec, folder).client
        yield from cluster(spec.cluster.metadata, client, timeout_s)
    stores = list(_stores(spec, folder, timeout_s))
    yield from stores
    if not any(finding.state == "problem" for finding in stores):
        advice = "raise --timeout, or look at the inputs: mrflight explain shows what is read"
        yield from checked("plan", partial(_plan, spec, folder), timeout_s, advice)


def _prepare(spec: JobSpec, folder: Path) -> list[Finding]:
    prepare_storage(spec, folder)
    found = [memory_of_job(RunSettings.of(spec, folder).memory.total, free_memory())]
    if (pems := spec.storage.get("pem_dir")) is not None:
        names = (CA_CHAIN, CLIENT_CERTIFICATE)
        found += certificate_files(folder / pems / name for name in names)
    return found


def _plan(spec: JobSpec, folder: Path) -> list[Finding]:
    lines = explain(spec, folder)
    return [Finding("plan", "ok", f"the job can start ({lines[0].split(maxsplit=1)[1]})")]


def _stores(spec: JobSpec, folder: Path, timeout_s: float) -> Iterator[Finding]:
    """Yield a finding for each store; those that a job names twice are asked once."""
    asked: set[str] = set()
    for path in spec.paths:
        fixed = _PATTERN.split(path, maxsplit=1)[0]
        whole = fixed if fixed == path else fixed.rpartition("/")[0] or "."
        location = locate(whole, folder, spec.storage)
        if location.store.is_disk or location.store.identity in asked:
            continue
        asked.add(location.store.identity)
        advice = location.store.failure_hint
        yield from checked(location.url, partial(_ask, location), timeout_s, advice)
        if scheme_of(path) in BUCKETS:
            yield clock_by_http(_endpoint(spec), timeout_s)


def _ask(location: Location) -> list[Finding]:
    try:
        location.is_folder()
    except OSError as error:
        raise read_failure("it cannot be read", error, location.store) from error
    return [Finding(location.url, "ok", "the store answers")]


def _endpoint(spec: JobSpec) -> str:
    options = {canonical(key): value for key, value in spec.storage.items()}
    region = options.get("aws_region", "us-east-1")
    return options.get(ENDPOINT, f"https://s3.{region}.amazonaws.com")
