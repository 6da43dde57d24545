"""``mrflight completion``: prints a script with which a shell completes the command.

The script has all words in it, so that completing starts no Python.
"""

from __future__ import annotations

import argparse

from mrflight.system.command_line import Command
from mrflight.system.standard_streams import print_answer


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")


COMMAND = Command(
    "completion",
    "print a script that completes this command in bash, zsh or fish",
    "Print a script with which a shell completes the commands and options of mrflight, and the "
    "keys of a job file after --set. Print it again when mrflight was updated.",
    (
        "source <(%(prog)s bash)      # or zsh: in this shell",
        "%(prog)s bash > ~/.local/share/bash-completion/completions/mrflight",
        "%(prog)s fish > ~/.config/fish/completions/mrflight.fish",
    ),
    _add_arguments,
)


def run(options: argparse.Namespace) -> int:
    """Print the script and return the exit code."""
    from mrflight.frontend.completion_scripts import SCRIPTS
    from mrflight.frontend.completion_words import words_of

    write = SCRIPTS[options.shell]
    return print_answer(write(tuple(words_of(options.parser))).rstrip("\n"))
