"""Options of stores that people keep in their environment; only commands look there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from mrflight.storage import hopsfs
from mrflight.storage.scheme import scheme_of

_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_ALLOW_HTTP",
)
"""As AWS's own tools have them, the first of two that say the same counting, and the last one as
deltalake does."""

_SAME_AS = {"aws_endpoint_url_s3": "aws_endpoint_url", "aws_default_region": "aws_region"}


def with_environment(
    options: Mapping[str, str], paths: Iterable[str], environment: Mapping[str, str]
) -> dict[str, str]:
    """``[storage]`` with what the environment has and it has not, for the stores of these paths.

    A bucket's options that say who asks go together: where the job has any of them, none are added.
    """
    schemes = {scheme_of(path) for path in paths}
    found: dict[str, str] = {}
    if "hopsfs" in schemes:
        found |= _of_hopsfs(environment)
    if schemes & {"s3", "s3a"}:
        found |= _of_bucket(options, environment)
    return {**found, **options}


def _of_hopsfs(environment: Mapping[str, str]) -> dict[str, str]:
    """What its client would take in any case: so it is checked as the job's own."""
    named = {key: environment.get(hopsfs.VARIABLES[key]) for key in ("pem_dir", "user")}
    found = {key: value for key, value in named.items() if value}
    if "pem_dir" in found:
        found["pem_dir"] = os.path.abspath(found["pem_dir"])  # and not from the job file's folder
    return found


def _of_bucket(options: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for variable in _VARIABLES:
        name = variable.lower()
        if value := environment.get(variable):
            found.setdefault(_SAME_AS.get(name, name), value)
    if any(_says_who(name) for name in options):
        found = {name: value for name, value in found.items() if not _says_who(name)}
    return found


def _says_who(name: str) -> bool:
    words = ("access_key", "secret", "token", "skip_signature", "role", "credential")
    return any(word in name.lower() for word in words)
