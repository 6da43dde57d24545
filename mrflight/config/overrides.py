"""Overrides of keys of a job file, as the command line writes them."""

from __future__ import annotations

import datetime
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from mrflight.config.document_check import STORAGE
from mrflight.config.secret_options import holds_secret
from mrflight.config.service_uri import check_argument
from mrflight.errors import JobFileError

_NOT_IN_A_KEY = re.compile(r"[^\w.-]")
"""What follows such a character may be a secret that is not written behind an equals sign."""


def parse_override(text: str) -> tuple[str, Any]:
    """Parse ``section.key=value`` of a command line; the value is TOML, or else a plain string.

    No key takes a date, so a value that looks like one, for example a run id, is a string, too.
    Raises JobFileError, which does not show the value, for other texts and for secrets of stores.
    """
    key, equals, value = text.partition("=")
    path = [name.strip() for name in key.split(".")]
    if not equals or not all(path):
        shown = _NOT_IN_A_KEY.split(key.strip(), maxsplit=1)[0]
        raise JobFileError(f"--set {shown}: write section.key=value")
    try:
        parsed = tomllib.loads(f"value = {value}")
    except ValueError:
        parsed = {}
    except RecursionError as error:
        raise JobFileError(f"--set {key}: the value is nested too deeply") from error
    is_one_value = parsed.keys() == {"value"}
    if not is_one_value or isinstance(parsed["value"], datetime.date | datetime.time):
        parsed = {"value": value}
    _check_no_secret(path, parsed["value"])
    return ".".join(path), parsed["value"]


def _check_no_secret(path: Sequence[str], value: Any) -> None:
    """Raise JobFileError for a secret, because a list of processes shows their arguments."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            _check_no_secret([*path, name], inner)
    elif path[-1] == "catalog" and isinstance(value, str):
        check_argument(value, f"--set {'.'.join(path)}")
    elif path[0] == STORAGE and holds_secret(path[-1], value):
        raise JobFileError(
            f"--set {'.'.join(path)}: a secret must not be an argument, because every user of this "
            "machine can read the arguments of a process; put it into [storage] of the job file, "
            "or into the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN)"
        )


def set_key(document: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set a key of a parsed job file; raise JobFileError if it is in no section."""
    for depth, name in enumerate(path[:-1]):
        document = document.setdefault(name, {})
        if not isinstance(document, dict):
            raise JobFileError(
                f"--set {'.'.join(path)}: {'.'.join(path[: depth + 1])} is not a section"
            )
    document[path[-1]] = value
