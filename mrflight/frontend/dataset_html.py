"""Shows a dataset and a plan in a notebook. Nothing is read or run for that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mrflight.config.input_frame import InputFrame
from mrflight.config.pickled_functions import shown_text
from mrflight.frontend.dataset_builder import InputBuilder, StageBuilder
from mrflight.result import html_table

_MAX_CHARACTERS = 300
"""A longer value, such as a query, is shortened."""

_METHODS = {"aggregate": "agg", "function": "reduce"}
"""The methods of keys that have other names."""

_HINT = "nothing has run yet: .show() prints the first rows, .collect() returns all rows"


class PlanText(str):
    """A plan as text, which a notebook and a prompt show in lines."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from html import escape

        return f'<pre style="line-height:normal;font-family:monospace">{escape(self)}</pre>'


def html_of(name: str, inputs: Sequence[InputBuilder], stage: StageBuilder | None) -> str:
    """Return the steps of a dataset as a table: its inputs, and what is made of them."""
    steps: dict[int, tuple[str, str]] = {}
    for each in inputs:
        _add_input(each, steps)
    if stage is not None:
        _add_stage(stage, steps)
    return html_table(f"Dataset {name} ({_HINT})", steps.values())


def _add_input(one: InputBuilder, steps: dict[int, tuple[str, str]]) -> None:
    """Add the files that are read, or the steps of a stage."""
    if one.stage is not None:
        _add_stage(one.stage, steps)
    if one.stage is None or one.options.keys() - {"key", "broadcast"}:
        steps.setdefault(id(one), (one.name, "\n".join(_lines(one.options))))


def _add_stage(stage: StageBuilder, steps: dict[int, tuple[str, str]]) -> None:
    """Add a stage after those that it reads."""
    if id(stage) in steps:
        return
    for each in stage.inputs:
        _add_input(each, steps)
    of = ", ".join(
        f"{each.name} by {', '.join(each.options['key'])}" if each.options.get("key") else each.name
        for each in stage.inputs
    )
    reduce = {_METHODS.get(key, key): value for key, value in stage.reduce.items()}
    lines = [f"of {of}", *_lines(reduce), *_lines(stage.shuffle)]
    steps[id(stage)] = (stage.name, "\n".join(lines))


def _lines(options: Mapping[str, object]) -> Iterator[str]:
    for key, value in options.items():
        if key == "steps" and isinstance(value, list):
            yield from (str(step["call"]) for step in value)
        elif key not in ("left", "right"):  # the inputs are in this order
            yield f"{key}: {_text(value)}"


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} = {_text(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    if isinstance(value, InputFrame):
        return value.kind
    text = shown_text(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"
