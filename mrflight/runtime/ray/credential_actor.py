"""Gives certificates to a user's own tasks on Ray, which use a shuffle that was passed to them.

The handle of the shuffle names Ray and the credentials, and holds no secret. The tasks ask
an actor, which only those reach who may call Ray.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray

from mrflight.config.identity import Identity
from mrflight.errors import JobFailedError
from mrflight.runtime.ray.losses import first_line
from mrflight.security.credentials import Credentials

_NAMESPACE = "mrflight"
_TIMEOUT_S = 60.0


class MrflightCredentials:
    """An actor that has the credentials of the users of one cluster."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def get(self) -> Credentials:
        return self._credentials


@contextmanager
def giving(credentials: Credentials, home: Any) -> Iterator[Identity]:
    """Give credentials to all tasks that ask for them until the block ends.

    Yields the identity with which they ask. ``home`` is Ray's strategy for where the actor runs.
    """
    actor = (
        ray.remote(MrflightCredentials)
        .options(
            name=credentials.name,
            namespace=_NAMESPACE,
            num_cpus=0,
            max_restarts=-1,
            scheduling_strategy=home,
        )
        .remote(credentials)
    )
    try:
        yield Identity(given=credentials.name, giver="ray")
    finally:
        ray.kill(actor)


def fetch(name: str) -> Credentials:
    """Return the credentials of this name; raises JobFailedError if the actor has ended."""
    try:
        actor = ray.get_actor(name, namespace=_NAMESPACE)
        found: Credentials = ray.get(actor.get.remote(), timeout=_TIMEOUT_S)
        return found
    except (ValueError, ray.exceptions.RayError, TimeoutError) as error:
        raise JobFailedError(
            "the certificate for the servers of a shuffle could not be had from Ray: "
            f"{first_line(error)}; has mrflight.on_ray.serving ended?"
        ) from error
