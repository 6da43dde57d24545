"""Options of S3 that go together, or leave a commit without its guard: told before anything runs.

Their clients would say so in words of their own, at the first request or at the commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mrflight.errors import JobFileError
from mrflight.storage.environment import ALLOW_HTTP, CONDITIONAL_PUT, ENDPOINT, canonical
from mrflight.storage.scheme import BUCKETS, scheme_of

_FALSE = ("0", "false", "off", "no", "n")
"""As object_store (0.13) reads it, in capitals as well."""


def check_endpoint(
    options: Mapping[str, str],
    paths: Iterable[str],
    environment: Mapping[str, str],
    at: str = "storage.",
) -> None:
    """JobFileError for an endpoint without TLS that is not allowed to be, where a path is in S3.

    ``environment`` is that of the process, where the clients look for what ``options`` have not;
    ``at`` is what leads to a key of these.
    """
    if not _is_any_bucket(paths):
        return
    endpoints = _given(ENDPOINT, options, environment, at)
    if not endpoints or not all(url.lower().startswith("http://") for url in endpoints.values()):
        return
    allowed = _given(ALLOW_HTTP, options, environment, at)
    if any(value.lower() not in _FALSE for value in allowed.values()):
        return
    raise JobFileError(
        f"{min(endpoints)}: an endpoint of http:// is asked without TLS, for which {ALLOW_HTTP} "
        f"(or {ALLOW_HTTP.upper()} of the environment) has to be true; set that, or write https://"
    )


def check_commits(
    options: Mapping[str, str],
    output: str,
    environment: Mapping[str, str],
    at: str = "storage.",
) -> None:
    """JobFileError where ``output`` is in S3 and its commits would lack the conditional put.

    The other arguments are those of `check_endpoint`.
    """
    if not _is_any_bucket([output]):
        return
    for key, value in _given(CONDITIONAL_PUT, options, environment, at).items():
        if value.strip() == "disabled":
            raise JobFileError(
                f"{key}: a commit to S3 is a conditional put, so that of two jobs one wins; "
                "without it none can be made: leave the option out, or write to a store that has "
                "such puts"
            )


def _is_any_bucket(paths: Iterable[str]) -> bool:
    return not BUCKETS.isdisjoint(map(scheme_of, paths))


def _given(
    option: str, options: Mapping[str, str], environment: Mapping[str, str], at: str
) -> dict[str, str]:
    """The values of an option, which has several names, by what they are called where they are."""
    found = {f"{at}{key}": value for key, value in options.items() if canonical(key) == option}
    return found or {
        key: value
        for key, value in environment.items()
        if key.startswith("AWS_") and canonical(key) == option
    }
