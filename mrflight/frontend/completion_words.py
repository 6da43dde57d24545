"""The words that a shell may complete, as the parser of a command knows them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

from mrflight.config.spec import JobSpec

Kind = Literal["nothing", "text", "choice", "setting", "job", "file", "folder"]
"""What follows an option, or what an argument is: a flag is followed by nothing, and a text cannot
be completed; a setting is ``SECTION.KEY=`` of a job file, and a job the path of one."""

_KINDS: dict[str, Kind] = {
    "JOB.toml": "job",
    "SECTION.KEY=VALUE": "setting",
    "DIR": "folder",
    "TABLE": "folder",
    "PATH": "file",
    "FILE": "file",
    "FILE.svg": "file",
    "QUERY.sql": "file",
}
"""By what the help calls the value."""

_WIDTH = 70


class Words(NamedTuple):
    """An option with its values, or an argument if it has no flags."""

    flags: tuple[str, ...]
    summary: str
    kind: Kind
    values: tuple[str, ...] = ()
    """The choices, or the settings."""


class CommandWords(NamedTuple):
    """What may follow a command; ``command`` is ``("serve", "data")``, or nothing at the top."""

    command: tuple[str, ...]
    subcommands: tuple[tuple[str, str], ...]
    """Their names and what they do."""
    options: tuple[Words, ...]
    arguments: tuple[Words, ...]

    @property
    def name(self) -> str:
        """The command as it is typed, without the name of the program."""
        return " ".join(self.command)

    @property
    def last_step(self) -> str:
        """The command before its last word, and that word: `` run`` or ``serve data``."""
        return f"{' '.join(self.command[:-1])} {self.command[-1]}"


def words_of(
    parser: argparse.ArgumentParser,
    command: tuple[str, ...] = (),
    verbs: tuple[tuple[str, str], ...] = (),
) -> Iterator[CommandWords]:
    """Yield the words of a command, and then those of its subcommands.

    ``verbs`` are subcommands that its own parser does not know, because it takes an argument in
    their place: ``ingest status`` is a command beside ``ingest``.
    """
    options: list[Words] = []
    arguments: list[Words] = []
    named: list[tuple[str, str]] = []
    parsers: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            parsers = action.choices
            named = [(each.dest, each.help or "") for each in action._choices_actions]
        elif action.help != argparse.SUPPRESS:
            (options if action.option_strings else arguments).append(_words(action))
    own = tuple(each for each in named if " " not in each[0])
    yield CommandWords(command, (*own, *verbs), tuple(options), tuple(arguments))
    for name, subparser in parsers.items():
        verbs = tuple(
            (other.removeprefix(f"{name} "), text)
            for other, text in named
            if other.startswith(f"{name} ")
        )
        yield from words_of(subparser, (*command, *name.split()), verbs)


def _words(action: argparse.Action) -> Words:
    flags, summary = tuple(action.option_strings), _first_clause(action.help or "")
    if action.nargs == 0:
        return Words(flags, summary, "nothing")
    if action.choices is not None:
        return Words(flags, summary, "choice", tuple(map(str, action.choices)))
    kind = _KINDS.get(str(action.metavar), "text")
    return Words(flags, summary, kind, tuple(_settings()) if kind == "setting" else ())


def _first_clause(text: str) -> str:
    """Return the beginning of a help text, which fits beside a word."""
    clause = text.partition(";")[0]
    return clause if len(clause) <= _WIDTH else clause.partition(",")[0]


def _settings() -> Iterator[str]:
    """Yield the keys of all sections of a job file whose names are not the user's own."""
    for section in msgspec.structs.fields(JobSpec):
        kind = msgspec.inspect.type_info(section.type)
        if isinstance(kind, msgspec.inspect.StructType):
            for key in msgspec.structs.fields(kind.cls):
                yield f"{section.encode_name}.{key.encode_name}="
