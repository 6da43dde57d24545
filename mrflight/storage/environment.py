"""Options of stores that people keep in their environment; only commands look there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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
    """``[storage]`` with what the environment has and it has not, where a path is a bucket's.

    Options that say who asks go together: where the job has any of them, none are added.
    """
    if not any(path.startswith(("s3://", "s3a://")) for path in paths):
        return dict(options)
    found: dict[str, str] = {}
    for variable in _VARIABLES:
        name = variable.lower()
        if value := environment.get(variable):
            found.setdefault(_SAME_AS.get(name, name), value)
    if any(_says_who(name) for name in options):
        found = {name: value for name, value in found.items() if not _says_who(name)}
    return {**found, **options}


def _says_who(name: str) -> bool:
    words = ("access_key", "secret", "token", "skip_signature", "role", "credential")
    return any(word in name.lower() for word in words)
