"""Functions that a job file names: ``module:function``, beside it or installed."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

from mrflight.errors import UserFunctionError


@dataclass(frozen=True)
class FunctionRef:
    """A function by the name that the job file gives it; loaded in the process that calls it."""

    key_path: str
    """Where the job file names it, for messages."""
    module: str
    name: str
    folder: str
    """The job file's folder, whose modules come before installed ones."""

    @classmethod
    def parse(cls, text: str, key_path: str, folder: str) -> FunctionRef:
        """The reference in ``module:function``; UserFunctionError where it is none."""
        module, colon, name = text.partition(":")
        dotted = [*module.split("."), *name.split(".")]
        if not colon or not all(part.isidentifier() for part in dotted):
            raise UserFunctionError(
                f"{key_path}: {text!r} is not a function; write 'module:function', the module "
                "beside the job file or installed"
            )
        return cls(key_path, module, name, folder)

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"

    def load(self) -> Callable[..., Any]:
        """Import the function; UserFunctionError says what is missing."""
        value: Any = self._import()
        for part in self.name.split("."):
            value = getattr(value, part, None)
        if not callable(value):
            raise UserFunctionError(
                f"{self.key_path}: module {self.module!r} has no function {self.name!r}"
            )
        function: Callable[..., Any] = value
        return function

    def _import(self) -> ModuleType:
        if self.folder not in sys.path:
            sys.path.insert(0, self.folder)
        beside = PathFinder.find_spec(self.module, [self.folder])
        try:
            if beside is not None and _is_taken(beside):
                return _load_beside(beside)
            return importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            if error.name != self.module.partition(".")[0]:
                raise self._cannot_import(error) from error
            raise UserFunctionError(
                f"{self.key_path}: no module {self.module!r} in {self.folder}, and none installed"
            ) from error
        except (Exception, SystemExit) as error:  # whatever a user's module does
            raise self._cannot_import(error) from error

    def _cannot_import(self, error: BaseException) -> UserFunctionError:
        return UserFunctionError(
            f"{self.key_path}: importing {self.module!r} failed: {type(error).__name__}: {error}"
        )


def _is_taken(beside: ModuleSpec) -> bool:
    """Whether another module of this name is loaded already, one of Python's own perhaps."""
    loaded = sys.modules.get(beside.name)
    origin = getattr(getattr(loaded, "__spec__", None), "origin", None)
    return loaded is not None and origin != beside.origin


@cache
def _load_from(name: str, path: str) -> ModuleType:
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _load_beside(beside: ModuleSpec) -> ModuleType:
    """Load a user's module without taking the name from those who know the other one by it."""
    return _load_from(beside.name, beside.origin or "")


def user_traceback(error: BaseException) -> str:
    """The traceback from the user's own code on, without the frames that called it."""
    frames = traceback.TracebackException.from_exception(error)
    del frames.stack[:1]
    return "".join(frames.format()).rstrip()


def check_function(ref: FunctionRef) -> None:
    """Load a function in a worker, so that a wrong name is found before the first task."""
    ref.load()
