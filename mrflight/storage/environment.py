"""Storage options that users keep in the environment. Only the commands look there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from mrflight.config.secret_reference import ENV
from mrflight.storage import hopsfs
from mrflight.storage.option_names import BUCKETS, ENDPOINT, canonical, scheme_of

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
"""The variables of AWS's own tools, and the last one of deltalake. Of two variables for the same
option the first one counts."""


def with_environment(
    options: Mapping[str, str],
    paths: Iterable[str],
    environment: Mapping[str, str],
    *,
    by_name: bool = False,
) -> dict[str, str]:
    """Return ``[storage]`` with the missing options of these paths' stores from the environment.

    The credentials of a bucket belong together: if the job sets any of them, none are added. With
    ``by_name`` they are added as references to the variables, which the processes of the job have
    as well, or are given: see `named_variables`.
    """
    schemes = {scheme_of(path) for path in paths}
    found: dict[str, str] = {}
    if "hopsfs" in schemes:
        found |= _of_hopsfs(environment)
    if schemes & BUCKETS:
        found |= _of_bucket(options, environment, by_name=by_name)
    return {**found, **options}


def _of_hopsfs(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what HopsFS's client takes in any case, so that it is checked like the job's own."""
    named = {key: environment.get(hopsfs.VARIABLES[key]) for key in ("pem_dir", "user")}
    found = {key: value for key, value in named.items() if value}
    if "pem_dir" in found:
        # The variable is relative to the working directory, and the option to the job file.
        found["pem_dir"] = os.path.abspath(found["pem_dir"])
    return found


def _of_bucket(
    options: Mapping[str, str], environment: Mapping[str, str], *, by_name: bool
) -> dict[str, str]:
    found: dict[str, str] = {}
    for variable in _VARIABLES:
        if value := environment.get(variable):
            is_secret = by_name and _is_credential(variable)
            found.setdefault(canonical(variable), f"{ENV}{variable}" if is_secret else value)
    given = {canonical(name) for name in options}
    has_credentials = any(map(_is_credential, options))
    return {
        name: value
        for name, value in found.items()
        if name not in given and not (has_credentials and _is_credential(name))
    }


def named_variables(
    options: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """Return the variables of AWS's tools that the options refer to, with what they have."""
    named = (value.removeprefix(ENV) for value in options.values() if value.startswith(ENV))
    found = (name for name in named if name in _VARIABLES and name in environment)
    return tuple((name, environment[name]) for name in found)


def conflicting_variables(
    options: Mapping[str, str], paths: Iterable[str], environment: Iterable[str]
) -> list[str]:
    """Return the variables that the clients must not see, if a path is in a bucket.

    obstore and deltalake read the process's environment themselves and add what ``[storage]`` does
    not set: for example a session token to a key that it does not belong to. So if ``options`` has
    a key, no variable with credentials may stay; if it has an endpoint, no variable with one may.
    Otherwise all variables stay: the tokens of pods and the roles of containers come in no other
    way.
    """
    if not {scheme_of(path) for path in paths} & BUCKETS:
        return []
    has_key = any("access_key" in name.lower() for name in options)
    has_endpoint = any(canonical(name) == ENDPOINT for name in options)
    referred = {value.removeprefix(ENV) for value in options.values() if value.startswith(ENV)}
    return [
        variable
        for variable in environment
        if variable.startswith("AWS_")
        and variable not in referred
        and (
            (has_key and _is_credential(variable))
            or (has_endpoint and canonical(variable) == ENDPOINT)
        )
    ]


def _is_credential(name: str) -> bool:
    words = ("access_key", "secret", "token", "skip_signature", "role", "credential")
    return any(word in name.lower() for word in words)
