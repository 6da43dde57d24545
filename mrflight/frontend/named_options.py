"""Keyword arguments that a TypedDict lists: ``**options: Unpack[...]``.

Type checkers and most editors know their names from there. This is for `help`, for notebooks, and
for whoever misspells one.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import ParamSpec, TypeVar, get_args, get_type_hints

import msgspec

P = ParamSpec("P")
R = TypeVar("R")


def with_named_options(
    section: type[msgspec.Struct],
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator of functions whose options are keys of a section of a job file.

    Their signature then has each option with its default, and other names are a TypeError.
    """
    defaults = {field.name: field.default for field in msgspec.structs.fields(section)}

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        hints = get_type_hints(function)
        declared = signature(function)
        parameters = dict(declared.parameters)
        collector, _ = parameters.popitem()  # ``**options`` comes last
        (options,) = get_args(hints.pop(collector))
        for name, kind in get_type_hints(options).items():
            default = defaults[name] if isinstance(defaults[name], str | bool) else None
            parameters[name] = Parameter(name, Parameter.KEYWORD_ONLY, default=default)
            hints[name] = kind
        names = [each.name for each in parameters.values() if each.kind == Parameter.KEYWORD_ONLY]

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs.keys() - parameters.keys():
                near = difflib.get_close_matches(name, names, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(names)}"
                raise TypeError(
                    f"{function.__name__}() got an unexpected keyword argument {name!r}; {hint}"
                )
            return function(*args, **kwargs)

        call.__annotations__ = hints
        call.__signature__ = declared.replace(  # type: ignore[attr-defined]
            parameters=[
                each.replace(annotation=hints.get(name, Parameter.empty))
                for name, each in parameters.items()
            ]
        )
        return call

    return decorate
