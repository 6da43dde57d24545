"""Describes commands, parses their arguments, and prints their help."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from mrflight.system.standard_streams import EXIT_RESULT_LOST, print_answer, say

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

T = TypeVar("T")


class Command(NamedTuple):
    """A command and what its help says. ``%(prog)s`` stands for the command in its examples."""

    name: str
    summary: str
    description: str
    examples: tuple[str, ...]
    add_arguments: Callable[[argparse.ArgumentParser], None]
    notes: str = ""

    def epilog(self) -> str:
        """Return what the help says after the options."""
        lines = [f"  {example}" for example in self.examples]
        title = "example:" if len(lines) == 1 else "examples:"
        examples = "\n".join([title, *lines])
        return "\n\n".join(filter(None, [examples, self.notes]))

    def parser(self, prog: str) -> CommandParser:
        """Return a parser of the command's arguments, for a program of this name."""
        parser = CommandParser(prog=prog, description=self.description, epilog=self.epilog())
        self.add_arguments(parser)
        return parser

    def add_to(self, commands: argparse._SubParsersAction[CommandParser]) -> CommandParser:
        """Make it a subcommand; return the parser of its arguments."""
        parser = commands.add_parser(
            self.name,
            help=self.summary,
            description=self.description,
            epilog=self.epilog(),
        )
        self.add_arguments(parser)
        return parser


class _HelpFormatter(argparse.HelpFormatter):
    """Wraps the paragraphs of a description, and keeps the lines of examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        import textwrap  # most commands print no help

        paragraphs = (
            paragraph if "\n  " in paragraph else textwrap.fill(paragraph, width)
            for paragraph in text.split("\n\n")
        )
        return "\n\n".join(paragraphs)

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):
            self._action_max_length += 2  # the names of commands are indented, which it forgets


class CommandParser(argparse.ArgumentParser):
    """A parser whose help is an answer like any other: see `print_answer`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_HelpFormatter, **options)

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        if file is not None:
            super().print_help(file)
        elif print_answer(self.format_help().rstrip("\n")):
            raise SystemExit(EXIT_RESULT_LOST)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the arguments, and how they are written."""
        say(f"{self.format_usage()}{self.prog}: error: {message}\n")
        raise SystemExit(2)


def quantity(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Return an option type that parses with ``parse``, and reports its ValueError."""

    def argument(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return argument
