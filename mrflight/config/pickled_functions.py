"""Callables that have no name to import, lambdas and closures: pickled into a text.

It stands where a job file has ``module:function``: ``pickled:NAME:BYTES``, the bytes in base64.
"""

from __future__ import annotations

import base64
import os
import pickle
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import msgspec

from mrflight.errors import UserFunctionError
from mrflight.units import format_bytes

PREFIX = "pickled:"

MOST_BYTES = 4 * 2**20
"""Of one callable, which is sent with every task that calls it: with 10 MiB a map took 0.1 s more,
and driver and workers together 280 MiB that no budget knows."""


def pickled(function: Callable[..., Any], what: str) -> str:
    """The text of a callable as it is now, with all that it refers to and no module has.

    UserFunctionError, beginning with ``what``, where it cannot be pickled.
    """
    name = name_of(function)
    body = _pickled(function, f"{what}: {name}")
    if len(body) > MOST_BYTES:
        raise UserFunctionError(
            f"{what}: {name} brings {format_bytes(len(body))} along, and would with every task; at "
            f"most {format_bytes(MOST_BYTES)} are sent: let it read a file, once, or join the rows"
        )
    return f"{PREFIX}{name}:{base64.b64encode(body).decode('ascii')}"


def split_pickled(text: str) -> tuple[str, str] | None:
    """The name in a text that `pickled` has made, and its bytes; None for another text."""
    if not text.startswith(PREFIX):
        return None
    name, _, encoded = text[len(PREFIX) :].rpartition(":")
    return (name, encoded) if name and encoded else None


@cache
def load_pickled(encoded: str) -> Callable[..., Any]:
    """The callable, made once in this process; raises whatever that does."""
    return _loaded(base64.b64decode(encoded, validate=True))


def name_of(function: Callable[..., Any]) -> str:
    """What messages call it: where it has no name of its own, with its file and line."""
    if isinstance(function, partial):
        return name_of(function.func)
    if isinstance(function, Chained):
        return function.name
    name = getattr(function, "__qualname__", type(function).__qualname__)
    code = getattr(function, "__code__", None)
    if "<" in name and code is not None:
        name = name.rpartition("<locals>.")[2]
        return f"{name} ({os.path.basename(code.co_filename)}, line {code.co_firstlineno})"
    return str(name)


class Chained(msgspec.Struct, frozen=True):
    """Maps that are one: each is given what the one before it has made."""

    name: str
    bodies: tuple[str, ...]
    """As `load_pickled` takes them."""

    def __call__(self, batch: Any) -> Any:
        """What the last one makes."""
        for body in self.bodies:
            batch = load_pickled(body)(batch)
        return batch


def chained(first: str, second: str) -> str | None:
    """The text of two maps, the second of what the first makes; None where one is only named."""
    parts = [split_pickled(text) for text in (first, second)]
    named = [part for part in parts if part is not None]
    if len(named) < len(parts):
        return None
    name = ", then ".join(name for name, _ in named)
    return pickled(Chained(name, tuple(body for _, body in named)), "map")


def _pickled(function: Callable[..., Any], what: str) -> bytes:
    """With the folders of modules, as a module that it refers to is loaded by its name."""
    import cloudpickle

    try:
        body = cloudpickle.dumps(function)
    except Exception as error:  # whatever what it holds does
        raise UserFunctionError(
            f"{what} cannot be sent to workers: {type(error).__name__}: {error}; let it make what "
            "cannot be pickled, a connection or an open file, when it is called"
        ) from error
    return pickle.dumps(([os.path.abspath(folder) for folder in sys.path], body))


def _loaded(body: bytes) -> Callable[..., Any]:
    folders, inner = pickle.loads(body)
    sys.path += [folder for folder in folders if folder not in sys.path]
    function: Callable[..., Any] = pickle.loads(inner)
    return function
