"""Functions that a job names: ``module:function``, beside its file or installed, or pickled."""

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
from mrflight.system.in_common import InCommon

_LIBRARY = str(Path(__file__).parents[1])

copies: dict[str, str] = {}
"""Of job files' folders, where this machine has one elsewhere than the driver has it."""


class FunctionRef(InCommon, msgspec.Struct, frozen=True):
    """A function by the name that the job file gives it; loaded in the process that calls it."""

    key_path: str
    """Where the job file names it, for messages."""
    module: str
    name: str
    folder: str
    """The job file's folder, whose modules come before installed ones."""
    pickled: str = ""
    """What `mrflight.config.pickled_functions` made of a callable; it has no module."""

    @classmethod
    def parse(cls, text: str, key_path: str, folder: str) -> FunctionRef:
        """The reference in ``module:function``, or to a callable that was pickled.

        UserFunctionError where it is none.
        """
        if (parts := split_pickled(text)) is not None:
            shown, pickled = parts
            return cls(key_path, "", shown, folder, pickled)
        module, colon, name = text.partition(":")
        dotted = [*module.split("."), *name.split(".")]
        if not colon or not all(part.isidentifier() for part in dotted):
            raise UserFunctionError(
                f"{key_path}: {text[:90]!r} is not a function; write 'module:function', the module "
                "beside the job file or installed"
            )
        return cls(key_path, module, name, folder)

    def __str__(self) -> str:
        return self.name if self.pickled else f"{self.module}:{self.name}"

    def load(self) -> Callable[..., Any]:
        """Import the function; UserFunctionError says what is missing."""
        if self.pickled:
            return self._unpickle()
        value: Any = self._import()
        for part in self.name.split("."):
            value = getattr(value, part, None)
        if not callable(value):
            raise UserFunctionError(
                f"{self.key_path}: module {self.module!r} has no function {self.name!r}"
            )
        function: Callable[..., Any] = value
        return function

    def _unpickle(self) -> Callable[..., Any]:
        try:
            return load_pickled(self.pickled)
        except BaseException as error:  # whatever a user's module does
            raise UserFunctionError(
                f"{self.key_path}: {self.name} cannot be loaded in a worker: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _import(self) -> ModuleType:
        folder = self._folder_here()
        if folder not in sys.path:
            sys.path.insert(0, folder)
        try:
            if (taken := self._beside_a_loaded_one()) is not None:
                return _load_from(self.module, taken)
            return importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            if error.name != self.module.partition(".")[0]:
                raise self._cannot_import(error) from error
            raise UserFunctionError(
                f"{self.key_path}: no module {self.module!r} in {self.folder}, and none installed"
            ) from error
        except BaseException as error:  # whatever a user's module does
            raise self._cannot_import(error) from error

    def _folder_here(self) -> str:
        return copies.get(self.folder, self.folder)

    def _beside_a_loaded_one(self) -> str | None:
        """The file of a module whose name another one has here, one of Python's own perhaps."""
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
    """Load a module without taking its name from those who know the other one by it."""
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def calling_user(what: str) -> Iterator[None]:
    """Turn whatever a user's code raises inside, even an exit, into UserFunctionRaisedError.

    The message is ``what`` raised, and the traceback from the user's own code on.
    """
    try:
        yield
    except BaseException as error:
        raise UserFunctionRaisedError(f"{what} raised:\n{_users_traceback(error)}") from error


def _users_traceback(error: BaseException) -> str:
    frames = traceback.TracebackException.from_exception(error)
    while frames.stack and frames.stack[0].filename.startswith(_LIBRARY):
        del frames.stack[0]
    return "".join(frames.format()).rstrip()


def check_function(ref: FunctionRef) -> None:
    """Load a function in a worker, so that a wrong name is found before the first task."""
    ref.load()
