"""References to secrets, ``env:NAME`` and ``file:PATH``, which are resolved where they are used.

Job files, settings and what is sent to workers have the reference. So the secret itself is in no
message, log or process list.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from mrflight.errors import JobFileError

ENV, FILE = "env:", "file:"
_MAX_BYTES = 64 * 2**10

_given: dict[str, str] = {}
"""Variables of the driver's environment, which this process does not have: see `give_variables`."""


def give_variables(variables: Iterable[tuple[str, str]]) -> None:
    """Let references in this process name variables of the driver's environment."""
    _given.update(variables)


def is_reference(text: str) -> bool:
    """Return whether the text refers to a secret, and is none itself."""
    return text.startswith((ENV, FILE))


def check_reference(text: str, key: str) -> None:
    """Raise JobFileError, which does not show the text, unless it is a reference."""
    if not is_reference(text):
        raise JobFileError(
            f"{key} must say where the secret is, env:NAME or file:PATH, and not be the secret "
            "itself, because others may read job files and command lines"
        )


def beside(text: str, folder: Path) -> str:
    """Return a text, which may be a reference, with the path of its file below a folder."""
    return f"{FILE}{folder / text.removeprefix(FILE)}" if text.startswith(FILE) else text


def resolved(options: Mapping[str, str], section: str) -> dict[str, str]:
    """Return the options of a section with secrets in place of references; raises JobFileError."""
    return {
        name: resolve(value, f"{section}.{name}") if is_reference(value) else value
        for name, value in options.items()
    }


def resolve(reference: str, key: str) -> str:
    """Return the secret that a reference names, without white space around it.

    Raises JobFileError, which names the ``key`` that has the reference, if there is none.
    """
    check_reference(reference, key)
    if reference.startswith(ENV):
        name = reference.removeprefix(ENV)
        found = _given.get(name, os.environ.get(name, "")).strip()
        if not found:
            raise JobFileError(f"{key}: the environment has no variable {name}; set it")
        return found
    path = Path(reference.removeprefix(FILE))
    try:
        with path.open("rb") as file:
            found = file.read(_MAX_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise JobFileError(
            f"{key}: {path} cannot be read: {reason}; write the secret into it, or correct the path"
        ) from error
    if not found:
        raise JobFileError(f"{key}: the file {path} is empty; write the secret into it")
    return found
