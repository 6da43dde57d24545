"""Ends the mistakes of Python users in one clear message.

A public call of the Python API raises its errors without the frames of mrflight and without their
causes, and in the words of Python. ``MRFLIGHT_DEBUG=1`` in the environment keeps them as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from inspect import isfunction
from types import TracebackType
from typing import Any, ParamSpec, Protocol, TypeVar, runtime_checkable

from mrflight.errors import MrflightError
from mrflight.frontend.python_words import PythonWords
from mrflight.system.debugging import is_debugging
from mrflight.system.ipython import ipython_shell

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)

_SPECIAL = ("__iter__", "__next__", "__getattr__")
"""Special methods that may run a job, or explain a mistake."""


@runtime_checkable
class WrittenInPython(Protocol):
    """An object whose methods report mistakes that were made in Python."""

    def _words(self) -> PythonWords:
        """Return what the user has written, for messages."""


def clear_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function or method."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True  # pytest leaves out this frame, too
        try:
            return function(*args, **kwargs)
        except (MrflightError, KeyboardInterrupt) as error:
            if is_debugging():
                raise
            if isinstance(error, MrflightError) and args and isinstance(args[0], WrittenInPython):
                _translate(error, args[0]._words())
            if ipython_shell() is not None:
                _hide_last_frame(error)
            # Python shows this line of the one frame that stays.
            raise error.with_traceback(None) from None  # MRFLIGHT_DEBUG=1 shows all frames

    return call


def with_clear_errors(kind: C) -> C:
    """Decorate the public methods that a class defines."""
    for name, member in list(vars(kind).items()):
        if name.startswith("_") and name not in _SPECIAL:
            continue
        if isfunction(member):
            setattr(kind, name, clear_errors(member))
        elif isinstance(member, property) and member.fget is not None:
            setattr(kind, name, property(clear_errors(member.fget), doc=member.__doc__))
    return kind


def _translate(error: MrflightError, words: PythonWords) -> None:
    if error.args and isinstance(error.args[0], str):
        error.args = (words.translate(error.args[0]), *error.args[1:])


def _hide_last_frame(error: Any) -> None:
    """Let IPython show the error without its last frame, which is that of `clear_errors`.

    IPython heeds ``__tracebackhide__`` in all frames but the last. It calls this method of an error
    that has it, which may have been pickled meanwhile.
    """
    error._render_traceback_ = partial(_render, error)


def _render(error: BaseException) -> Any:
    """Return the lines that IPython shows."""
    frames = _without_last(error.__traceback__)
    return ipython_shell().InteractiveTB.structured_traceback(type(error), error, frames)


def _without_last(frames: TracebackType | None) -> TracebackType | None:
    if frames is None or frames.tb_next is None:
        return None
    rest = _without_last(frames.tb_next)
    return TracebackType(rest, frames.tb_frame, frames.tb_lasti, frames.tb_lineno)
