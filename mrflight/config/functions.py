"""References to functions of the user: ``module:function``, or a pickled callable.

A module is beside the job file, or installed.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from mrflight.config.pickled_functions import load_pickled, split_pickled
from mrflight.errors import UserFunctionError, UserFunctionRaisedError
from mrflight.system.shared_payload import SharedPayload

_LIBRARY = str(Path(__file__).parents[1])

_OF_SYSTEM = (OSError, MemoryError)

copies: dict[str, str] = {}
"""Folders of job files, and where this machine has its copy of them if that is another path."""


class FunctionRef(SharedPayload, msgspec.Struct, frozen=True):
    """A function by its name in the job file; it is loaded in the process that calls it."""

    key_path: str
    """The key of the job file that names it, for messages."""
    module: str
    name: str
    folder: str
    """The job file's folder; its modules take precedence over installed ones."""
    pickled: str = ""
    """A callable as text of `mrflight.config.pickled_functions`; it has no module."""

    @classmethod
    def parse(cls, text: str, key_path: str, folder: str) -> FunctionRef:
        """Parse ``module:function``, or a pickled callable; raises UserFunctionError."""
        if (parts := split_pickled(text)) is not None:
            shown, pickled = parts
            return cls(key_path, "", shown, folder, pickled)
        module, colon, name = text.partition(":")
        dotted = [*module.split("."), *name.split(".")]
        if not colon or not all(part.isidentifier() for part in dotted):
            raise UserFunctionError(
                f"{key_path}: {text[:90]!r} is not a function; write 'module:function', with a "
                "module that is beside the job file or installed"
            )
        return cls(key_path, module, name, folder)

    def __str__(self) -> str:
        return self.name if self.pickled else f"{self.module}:{self.name}"

    def load(self) -> Callable[..., Any]:
        """Import the function; raises UserFunctionError if it cannot be found."""
        if self.pickled:
            return self._unpickle()
        value: Any = (module := self._import())
        for part in self.name.split("."):
            value = getattr(value, part, None)
        if not callable(value):
            raise self._missing_in(module)
        function: Callable[..., Any] = value
        return function

    def _missing_in(self, module: ModuleType) -> UserFunctionError:
        import difflib  # for few processes

        functions = [name for name, each in vars(module).items() if callable(each)]
        near = difflib.get_close_matches(self.name, functions, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        file = getattr(module, "__file__", None) or "of Python"
        return UserFunctionError(
            f"{self.key_path}: module {self.module!r} ({file}) has no function {self.name!r}{hint}"
        )

    def _unpickle(self) -> Callable[..., Any]:
        try:
            return load_pickled(self.pickled)
        except BaseException as error:  # a module of the user may raise anything
            raise UserFunctionError(
                f"{self.key_path}: {self.name} cannot be loaded in a worker: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _import(self) -> ModuleType:
        folder = self._folder_here()
        if folder not in sys.path:
            sys.path.insert(0, folder)
        try:
            if (file := self._shadowed_file()) is not None:
                return _load_from(self.module, file)
            return importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            if error.name != self.module.partition(".")[0]:
                raise self._cannot_import(error) from error
            raise UserFunctionError(
                f"{self.key_path}: there is no module {self.module!r} in {self.folder}, nor an "
                "installed one"
            ) from error
        except BaseException as error:  # a module of the user may raise anything
            raise self._cannot_import(error) from error

    def _folder_here(self) -> str:
        return copies.get(self.folder, self.folder)

    def _shadowed_file(self) -> str | None:
        """Return the module's file if another module of this name, perhaps Python's, is loaded."""
        loaded = sys.modules.get(self.module)
        if loaded is None or "." in self.module:
            return None
        beside = PathFinder.find_spec(self.module, [self._folder_here()])
        if beside is None or beside.origin is None:  # a folder without code has no origin
            return None
        origin = getattr(loaded.__spec__, "origin", None)
        return beside.origin if beside.origin != origin else None

    def _cannot_import(self, error: BaseException) -> UserFunctionError:
        return UserFunctionError(
            f"{self.key_path}: importing {self.module!r} failed: {type(error).__name__}: {error}"
        )


@cache
def _load_from(name: str, path: str) -> ModuleType:
    """Load a module without replacing the one that is imported by this name."""
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def calling_user(what: str) -> Iterator[None]:
    """Raise UserFunctionRaisedError for anything that a user's code raises, even SystemExit.

    The message says ``what`` raised, with the traceback from the user's code on.
    """
    try:
        yield
    except BaseException as error:
        raised = UserFunctionRaisedError(f"{what} raised:\n{_users_traceback(error)}")
        raised.has_system_cause = any(isinstance(each, _OF_SYSTEM) for each in _chain(error))
        raise raised from error


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception, and those that were being handled when it was raised."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _users_traceback(error: BaseException) -> str:
    frames = traceback.TracebackException.from_exception(error)
    while frames.stack and frames.stack[0].filename.startswith(_LIBRARY):
        del frames.stack[0]
    return "".join(frames.format()).rstrip()


def check_function(ref: FunctionRef) -> None:
    """Load a function in a worker, to find a wrong name before the first task."""
    ref.load()
