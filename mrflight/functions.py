"""Functions that a job file names: ``module:function``, beside it or installed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
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
        if self.folder not in sys.path:
            sys.path.insert(0, self.folder)
        try:
            value: Any = importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            if error.name != self.module.partition(".")[0]:
                raise self._cannot_import(error) from error
            raise UserFunctionError(
                f"{self.key_path}: no module {self.module!r} in {self.folder}, and none installed"
            ) from error
        except Exception as error:  # whatever a user's module does when it is imported
            raise self._cannot_import(error) from error
        for part in self.name.split("."):
            value = getattr(value, part, None)
        if not callable(value):
            raise UserFunctionError(
                f"{self.key_path}: module {self.module!r} has no function {self.name!r}"
            )
        function: Callable[..., Any] = value
        return function

    def _cannot_import(self, error: Exception) -> UserFunctionError:
        return UserFunctionError(
            f"{self.key_path}: importing {self.module!r} failed: {type(error).__name__}: {error}"
        )


def check_function(ref: FunctionRef) -> None:
    """Load a function in a worker, so that a wrong name is found before the first task."""
    ref.load()
