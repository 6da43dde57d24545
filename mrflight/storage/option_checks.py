"""Checks of ``[storage]`` before anything is started or read.

The stores' clients report a wrong option in their own words, at the first request or at the commit.
deltalake ignores a key that it does not know, and what the user meant by it is then missing.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError
from mrflight.storage import hopsfs, s3
from mrflight.storage.option_names import (
    ALLOW_HTTP,
    BUCKETS,
    CONDITIONAL_PUT,
    DELTALAKE_ONLY,
    ENDPOINT,
    NAME_NODES,
    OBJECT_STORE,
    canonical,
    scheme_of,
)

_KNOWN = (*OBJECT_STORE, *DELTALAKE_ONLY, *hopsfs.VARIABLES)

_MIN_SIMILARITY = 0.75
"""A ratio of `difflib`. Below this, ``user_agent`` would be suggested for ``secret``."""

_KEYS_PAGE = "docs/reference/storage-options.md"

_FALSE = ("0", "false", "off", "no", "n")
"""The values that object_store (0.13) reads as false, in upper or lower case."""


def prepare_storage(spec: JobSpec, folder: Path) -> None:
    """Check the storage options, and set what the clients read from the environment.

    The job's processes inherit it. ``folder`` is that of the job file. Raises what `check_options`,
    `check_endpoint`, `check_commits` and `hopsfs.prepare` raise, and JobFileError if the settings
    would not reach the workers.
    """
    paths = spec.paths
    check_options(spec.storage, paths)
    check_endpoint(spec.storage, paths, os.environ)
    if spec.has_output and not spec.output.in_catalog:
        check_commits(spec.storage, spec.output.table, os.environ)
    _check_reaches_workers(spec, paths)
    hopsfs.prepare(spec.storage, paths, folder)


def check_options(options: Iterable[str], paths: Iterable[str], at: str = "storage.") -> None:
    """Raise JobFileError for the first key that no client of these paths' stores takes.

    ``at`` is the prefix of a key in messages. Keys of one store may be set for paths of another,
    and any key if all paths are on disks. Hadoop's properties, which have dots, are left to its
    client. This asks no store.
    """
    schemes = {scheme_of(path) for path in paths}
    if schemes.isdisjoint(BUCKETS | NAME_NODES):
        return
    for key in options:
        is_property = "." in key and not schemes.isdisjoint(NAME_NODES)
        if is_property or _is_known(key):
            continue
        near = difflib.get_close_matches(key.lower(), _KNOWN, n=1, cutoff=_MIN_SIMILARITY)
        hint = f"did you mean {near[0]!r}? All" if near else "all"
        raise JobFileError(f"{at}{key}: unknown key; {hint} are in {_KEYS_PAGE}")


def _is_known(key: str) -> bool:
    if key.lower() in OBJECT_STORE or key in _KNOWN:
        return True
    return s3.knows_option(key)  # a newer client may have more than are listed here


def check_endpoint(
    options: Mapping[str, str],
    paths: Iterable[str],
    environment: Mapping[str, str],
    at: str = "storage.",
) -> None:
    """Raise JobFileError if a path is in S3 and its endpoint has no TLS, without permission.

    ``environment`` is that of the process: the clients look there for missing options. ``at`` is
    the prefix of a key in messages.
    """
    if not _has_bucket(paths):
        return
    endpoints = _values(ENDPOINT, options, environment, at)
    if not endpoints or not all(url.lower().startswith("http://") for url in endpoints.values()):
        return
    allowed = _values(ALLOW_HTTP, options, environment, at)
    if any(value.lower() not in _FALSE for value in allowed.values()):
        return
    raise JobFileError(
        f"{min(endpoints)} is an http:// URL, so requests would go without TLS; set {ALLOW_HTTP} "
        f"(or {ALLOW_HTTP.upper()} in the environment) to true to allow that, or write https://"
    )


def check_commits(
    options: Mapping[str, str],
    output: str,
    environment: Mapping[str, str],
    at: str = "storage.",
) -> None:
    """Raise JobFileError if ``output`` is in S3 and conditional puts are disabled.

    Commits need them. The other arguments are those of `check_endpoint`.
    """
    if not _has_bucket([output]):
        return
    for key, value in _values(CONDITIONAL_PUT, options, environment, at).items():
        if value.strip() == "disabled":
            raise JobFileError(
                f"{key} must not be disabled: a commit to S3 is a conditional put, so that only "
                "one of two concurrent jobs commits; leave the option out, or write to a store "
                "that supports conditional puts"
            )


def _has_bucket(paths: Iterable[str]) -> bool:
    return not BUCKETS.isdisjoint(map(scheme_of, paths))


def _values(
    option: str, options: Mapping[str, str], environment: Mapping[str, str], at: str
) -> dict[str, str]:
    """Return the values of an option under each of its names, by the key to show in messages."""
    found = {f"{at}{key}": value for key, value in options.items() if canonical(key) == option}
    return found or {
        key: value
        for key, value in environment.items()
        if key.startswith("AWS_") and canonical(key) == option
    }


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
