"""Pickles the calls that are sent to workers, and their answers."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from typing import Any

Call = tuple[Callable[..., Any], Any, Any]
"""A function with its args and kwargs."""


class WorkerTracebackError(Exception):
    """The cause of an error from a worker: the traceback in the worker."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def encode_call(function: Callable[..., Any], args: Any, kwargs: Any) -> bytes:
    """Pickle a call of a function that the worker can import; raises what pickling raises."""
    return pickle.dumps((function, args, kwargs))


def run_call(
    call: bytes,
    before: Callable[[Callable[..., Any]], None],
    decode: Callable[[bytes], Call] = pickle.loads,
) -> bytes:
    """Run a call in the worker, and pickle ``(value, None)`` or ``(error, traceback)``.

    ``before`` is called with the function first.
    """
    try:
        function, args, kwargs = decode(call)
        before(function)
        return pickle.dumps((function(*args, **kwargs), None))
    except BaseException as error:  # the driver handles it
        return _encode_error(error, "".join(traceback.format_exception(error)))


def decode_answer(encoded: bytes) -> Any:
    """Return the value, or raise the error with the worker's traceback as its cause."""
    value, trace = pickle.loads(encoded)
    if trace is None:
        return value
    raise value from WorkerTracebackError(trace)


def _encode_error(error: BaseException, trace: str) -> bytes:
    try:
        encoded = pickle.dumps((error, trace))
        pickle.loads(encoded)  # some errors can be pickled, but not unpickled
    except Exception as reason:
        shown = RuntimeError(f"{type(error).__name__}: {error} (which cannot be sent: {reason})")
        return pickle.dumps((shown, trace))
    return encoded
