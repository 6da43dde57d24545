"""Shells complete the command by the scripts that it prints."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from shutil import which

import pytest

from mrflight.frontend import cli
from mrflight.frontend.completion_scripts import SCRIPTS
from mrflight.frontend.completion_words import words_of
from tests.support.suite.cases import cases

ASK = {
    "bash": """
        source {script}; COMP_WORDS=(mrflight {words}); COMP_CWORD={last}; _mrflight
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """,
    "fish": "source {script}; complete -C {line}",
}
CHECK = {"bash": "bash -n", "zsh": "zsh -n", "fish": "fish -n"}
"""zsh completes only on a terminal, so that its script is only parsed here."""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("scripts")
    commands = tuple(words_of(cli.command_parser()))
    for shell, write in SCRIPTS.items():
        (folder / shell).write_text(write(commands))
    return {shell: folder / shell for shell in SCRIPTS}


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("shell", [shell for shell in CHECK if which(shell)])
def test_a_shell_reads_its_script(shell: str, scripts: dict[str, Path], tmp_path: Path) -> None:
    run([*shlex.split(CHECK[shell]), str(scripts[shell])], tmp_path)


OFFERED: list[tuple[list[str], set[str]]] = [
    (["se"], {"serve"}),
    (["serve", ""], {"metadata", "data"}),
    (["ingest", "s"], {"status"}),
    (["ingest", "j"], {"job.toml"}),
    (["ingest", "replay-rejected", "j"], {"job.toml"}),
    (["run", "--set", "shuffle.p"], {"shuffle.partitions=", "shuffle.partitioner="}),
    (["run", "j"], {"job.toml"}),
    (["serve", "data", "--spill-dir", "a"], {"a folder"}),
    (["serve", "data", "--memory", ""], {""}),
    (["sql", "--file", "job.t"], {"job.toml"}),
]
BY_THE_PARSER = [
    ["completion", ""],
    ["ingest", "job.toml", "--u"],
    ["run", "--l"],
    ["run", "--log-level", ""],
    ["run", "job.toml", "--js"],
    ["serve", "data", "--s"],
    ["clean", "out", "--no"],
    ["run", "serve", "--s"],
    ["sql", "--f"],
    ["sql", "--format", ""],
]
"""What has been typed where options or choices follow."""


def offered_by_the_parser(typed: list[str]) -> set[str]:
    """Return the options that begin as the last word, or the choices of what stands before it."""
    commands = {words.command: words for words in words_of(cli.command_parser())}
    at = 2 if tuple(typed[:2]) in commands else 1
    words = commands[tuple(typed[:at])]
    choices = [
        option.values
        for option in (*words.options, *words.arguments)
        if option.kind == "choice" and (typed[-2] in option.flags or at == len(typed) - 1)
    ]
    flags = [flag for option in words.options for flag in option.flags]
    found = choices[0] if typed[-1] == "" and choices else flags
    return {each for each in found if each.startswith(typed[-1])}


@pytest.mark.parametrize("shell", [shell for shell in ASK if which(shell)])
def test_what_is_offered(shell: str, scripts: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "job.toml").touch()
    (tmp_path / "job.csv").touch()
    (tmp_path / "a folder").mkdir()
    others = {"", "job.csv"} if shell == "fish" else {""}  # fish offers them after job files
    by_the_parser = [(typed, offered_by_the_parser(typed)) for typed in BY_THE_PARSER]
    assert all(offered for _, offered in by_the_parser)
    with cases() as case:
        for typed, offered in [*OFFERED, *by_the_parser]:
            with case(typed):
                found = completed(shell, typed, scripts[shell], tmp_path)
                assert found - others == offered - {""}


def completed(shell: str, typed: list[str], script: Path, folder: Path) -> set[str]:
    """Return what a shell offers where this has been typed."""
    text = ASK[shell].format(
        script=script,
        words=shlex.join(typed),
        last=len(typed),
        line=shlex.quote(" ".join(["mrflight", *typed])),
    )
    lines = run([shell, "-c", text], folder).split("\n")
    return {line.partition("\t")[0].rstrip("/") for line in lines}


def test_every_option_is_in_every_script(scripts: dict[str, Path]) -> None:
    for words in words_of(cli.command_parser()):
        flags = [flag for option in words.options for flag in option.flags]
        for shell, script in scripts.items():
            text = script.read_text()
            marks = [flag.lstrip("-") if shell == "fish" else flag for flag in flags]
            assert [mark for mark in marks if mark not in text] == [], shell
