"""Options of stores that people keep in their environment; only commands look there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from mrflight.storage import hopsfs
from mrflight.storage.scheme import BUCKETS, scheme_of

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

ENDPOINT, ALLOW_HTTP = "aws_endpoint_url", "aws_allow_http"
CONDITIONAL_PUT = "aws_conditional_put"
_SAME_AS = {
    **dict.fromkeys(("aws_endpoint_url_s3", "aws_endpoint", "endpoint_url", "endpoint"), ENDPOINT),
    **dict.fromkeys(("aws_default_region", "default_region", "region"), "aws_region"),
    "allow_http": ALLOW_HTTP,
    "conditional_put": CONDITIONAL_PUT,
}
"""Of object_store's names, and AWS's own, for one thing."""


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
    if schemes & BUCKETS:
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
        if value := environment.get(variable):
            found.setdefault(canonical(variable), value)
    given = {canonical(name) for name in options}
    says_who = any(map(_says_who, options))
    return {
        name: value
        for name, value in found.items()
        if name not in given and not (says_who and _says_who(name))
    }


def not_to_be_mixed(
    options: Mapping[str, str], paths: Iterable[str], environment: Iterable[str]
) -> list[str]:
    """The variables that the stores' clients must not see, where a path is a bucket's.

    obstore and deltalake look at the process's environment themselves, and add what ``[storage]``
    has not: a session token to a key that it is not of. So with a key in ``options``, of the job
    itself, none that says who asks may stay, and with an endpoint none that says where. Without
    them all stay: tokens of pods and roles of containers come by no others.
    """
    if not {scheme_of(path) for path in paths} & BUCKETS:
        return []
    has_key = any("access_key" in name.lower() for name in options)
    has_endpoint = any(canonical(name) == ENDPOINT for name in options)
    return [
        variable
        for variable in environment
        if variable.startswith("AWS_")
        and (
            (has_key and _says_who(variable)) or (has_endpoint and canonical(variable) == ENDPOINT)
        )
    ]


def canonical(name: str) -> str:
    """The one name of an option of a bucket that is called by several, or a variable for it."""
    return _SAME_AS.get(name.lower(), name.lower())


def _says_who(name: str) -> bool:
    words = ("access_key", "secret", "token", "skip_signature", "role", "credential")
    return any(word in name.lower() for word in words)
