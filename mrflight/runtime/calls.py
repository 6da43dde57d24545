"""A call and its answer, as they go to a worker and come back: pickled."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from typing import Any

Call = tuple[Callable[..., Any], Any, Any]
"""A function, and what it is called with: args and kwargs."""


class WorkerTracebackError(Exception):
    """The cause of an error that came from a worker: where it was raised there."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def encode_call(function: Callable[..., Any], args: Any, kwargs: Any) -> bytes:
    """A call of a function that the worker can import. Raises what pickling raises."""
    return pickle.dumps((function, args, kwargs))


def answer(
    call: bytes,
    about_to: Callable[[Callable[..., Any]], None],
    decode: Callable[[bytes], Call] = pickle.loads,
) -> bytes:
    """In the worker: make the call; ``(value, None)``, or ``(its error, the traceback)``.

    ``about_to`` is told the function first.
    """
    try:
        function, args, kwargs = decode(call)
        about_to(function)
        return pickle.dumps((function(*args, **kwargs), None))
    except BaseException as error:  # a user's function may raise anything: the driver decides
        return _encode_error(error, "".join(traceback.format_exception(error)))


def decode_answer(encoded: bytes) -> Any:
    """In the driver: the value, or raises the error with the worker's traceback as its cause."""
    value, trace = pickle.loads(encoded)
    if trace is None:
        return value
    raise value from WorkerTracebackError(trace)


def _encode_error(error: BaseException, trace: str) -> bytes:
    try:
        encoded = pickle.dumps((error, trace))
        pickle.loads(encoded)  # some errors can be written, but not read
    except Exception as reason:
        told = RuntimeError(f"{type(error).__name__}: {error} (which cannot be sent: {reason})")
        return pickle.dumps((told, trace))
    return encoded
