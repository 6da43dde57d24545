"""Pickles callables that cannot be imported by name, such as lambdas and closures, into a text.

The text takes the place of ``module:function`` in a job: ``pickled:NAME:BYTES``, with the bytes in
base64.
"""

from __future__ import annotations

import base64
import linecache
import os
import pickle
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from mrflight.errors import UserFunctionError
from mrflight.units import format_bytes

PREFIX = "pickled:"

MAX_BYTES = 4 * 2**20
"""The largest callable, which is sent with every task that calls it. With 10 MiB a map took 0.1 s
longer, and driver and workers together took 280 MiB that are not in the memory plan."""


def pickle_function(function: Callable[..., Any], what: str) -> str:
    """Return the text of a callable as it is now, with everything it refers to outside modules.

    Raises UserFunctionError, whose message begins with ``what``, if it cannot be pickled.
    """
    return pickle_object(function, name_of(function), what)


def function_text(function: Callable[..., Any] | str, what: str) -> str:
    """Return the text of a function, which may be one already; UserFunctionError for others."""
    if isinstance(function, str):
        return function
    if not callable(function):
        raise UserFunctionError(
            f"{what}: {function!r} is neither a callable nor a text such as 'module:function'"
        )
    return pickle_function(function, what)


def pickle_object(value: object, name: str, what: str) -> str:
    """Return the text of an object, as `pickle_function` does for a callable."""
    body = _dump(value, f"{what}: {name}")
    if len(body) > MAX_BYTES:
        raise UserFunctionError(
            f"{what}: {name} refers to {format_bytes(len(body))} of data, which would be sent with "
            f"every task; at most {format_bytes(MAX_BYTES)} are sent: let it read a file once, or "
            "join the rows"
        )
    return f"{PREFIX}{name}:{base64.b64encode(body).decode('ascii')}"


def split_pickled(text: str) -> tuple[str, str] | None:
    """Return the name and the bytes of a text of `pickle_function`; None for other texts."""
    if not text.startswith(PREFIX):
        return None
    name, _, encoded = text[len(PREFIX) :].rpartition(":")
    return (name, encoded) if name and encoded else None


def shown_text(text: str) -> str:
    """Return the text of a function or an expression, pickled or not, as messages show it."""
    parts = split_pickled(text)
    return parts[0] if parts else text


@cache
def load_pickled(encoded: str) -> Any:
    """Return the object, which is unpickled once per process; raises what unpickling raises."""
    return _load(base64.b64decode(encoded, validate=True))


def name_of(function: Callable[..., Any]) -> str:
    """Return the name for messages; a function without one is named by its file and line."""
    if isinstance(function, partial):
        return name_of(function.func)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    code = getattr(function, "__code__", None)
    if "<" in name and code is not None:
        name = name.rpartition("<locals>.")[2]
        return f"{name} ({os.path.basename(code.co_filename)}, line {code.co_firstlineno})"
    return str(name)


def _dump(value: object, what: str) -> bytes:
    """Pickle an object, with what a worker needs beside it.

    That is the search path, by which modules that it refers to are loaded, and the lines of code
    that no file has, for tracebacks.
    """
    import cloudpickle

    try:
        body = cloudpickle.dumps(value)
    except Exception as error:  # whatever the objects that it refers to raise
        raise UserFunctionError(
            f"{what} cannot be sent to workers: {type(error).__name__}: {error}; create what "
            "cannot be pickled, such as a connection or an open file, when it is called"
        ) from error
    return pickle.dumps(([os.path.abspath(folder) for folder in sys.path], _cells_in(body), body))


def _cells_in(body: bytes) -> dict[str, Any]:
    """Return the entries of `linecache` for the cells of a notebook that a pickle refers to."""
    return {
        file: entry
        for file, entry in list(linecache.cache.items())
        # An entry without a time is of code that was never in a file.
        if len(entry) == 4 and entry[1] is None and os.fsencode(file) in body
    }


def _load(body: bytes) -> Any:
    folders, cells, inner = pickle.loads(body)
    sys.path += [folder for folder in folders if folder not in sys.path]
    linecache.cache.update(cells)
    return pickle.loads(inner)
