"""One process asks HopsFS with one set of settings.

Its client (hops-deltalake 1.4) takes them from the environment whenever it connects, and keeps
connections: with other settings for a second job, each would do a part as the other's user.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping

from mrflight.errors import JobFileError


class ClientSettings:
    """What this process's client is told: by the first job, or who asks without one, for good."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        """``variables`` has them by their keys of ``[storage]``."""
        self._variables = variables
        self._lock = threading.Lock()
        self._told: dict[str, str] | None = None
        self._around: dict[str, str] = {}
        """What the environment had before."""

    def of_environment(self, variable: str) -> str:
        """What the environment says, without what a job has put there; empty where nothing."""
        value = os.environ.get(variable, "")
        if self._told is not None and value == self._told[variable]:
            return self._around[variable]
        return value

    def tell(self, found: Mapping[str, str]) -> None:
        """Have the client use these, and the environment for others.

        JobFileError where it was told something else before.
        """
        with self._lock:
            around = self._environment()
            asked = {**around, **found}
            if self._told is None:
                self._told, self._around = asked, around
            self._check(asked, self._told)
            os.environ.update({variable: value for variable, value in asked.items() if value})

    def begin(self) -> None:
        """The client is made, of the environment as it is, where nobody has told it anything."""
        with self._lock:
            if self._told is None:
                self._told = self._around = self._environment()

    def _environment(self) -> dict[str, str]:
        return {variable: self.of_environment(variable) for variable in self._variables.values()}

    def _check(self, asked: Mapping[str, str], told: Mapping[str, str]) -> None:
        for key, variable in self._variables.items():
            if asked[variable] != told[variable]:
                raise JobFileError(
                    f"storage.{key} (or {variable} of the environment) cannot be "
                    f"{_shown(asked[variable])} any more: this process asks HopsFS with "
                    f"{_shown(told[variable])}, and its client keeps connections; run this in "
                    "another process"
                )


def _shown(value: str) -> str:
    return repr(value) if value else "none"
