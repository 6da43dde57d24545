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


@pytest.mark.parametrize("shell", [shell for shell in ASK if which(shell)])
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["se"], {"serve"}),
        (["serve", ""], {"metadata", "data"}),
        (["completion", ""], {"bash", "zsh", "fish"}),
        (["ingest", "s"], {"status"}),
        (["ingest", "j"], {"job.toml"}),
        (
            ["ingest", ""],
            {"status", "offsets", "verify", "replay-rejected", "job.toml", "a folder"},
        ),
        (["ingest", "replay-rejected", "j"], {"job.toml"}),
        (["ingest", "job.toml", "--u"], {"--until-caught-up"}),
        (["run", "--l"], {"--log-level", "--log-format"}),
        (["run", "--log-level", ""], {"debug", "info", "warning", "error"}),
        (["run", "--set", "shuffle.p"], {"shuffle.partitions=", "shuffle.partitioner="}),
        (["run", "j"], {"job.toml"}),
        (["run", "job.toml", "--js"], {"--json"}),
        (["serve", "data", "--s"], {"--socket", "--spill-dir"}),
        (["serve", "data", "--spill-dir", "a"], {"a folder"}),
        (["serve", "data", "--memory", ""], {""}),
        (["clean", "out", "--no"], {"--no-table"}),
        (["run", "serve", "--s"], {"--set"}),
        (["sql", "--f"], {"--file", "--format", "--fresh", "--function"}),
        (["sql", "--file", "job.t"], {"job.toml"}),
        (["sql", "--format", ""], {"table", "csv", "json", "arrow"}),
    ],
)
def test_what_is_offered(
    shell: str, typed: list[str], offered: set[str], scripts: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "job.toml").touch()
    (tmp_path / "job.csv").touch()
    (tmp_path / "a folder").mkdir()
    text = ASK[shell].format(
        script=scripts[shell],
        words=shlex.join(typed),
        last=len(typed),
        line=shlex.quote(" ".join(["mrflight", *typed])),
    )
    lines = run([shell, "-c", text], tmp_path).split("\n")
    found = {line.partition("\t")[0].rstrip("/") for line in lines}
    others = {"", "job.csv"} if shell == "fish" else {""}  # fish offers them after job files
    assert found - others == offered - {""}


def test_every_option_is_in_every_script(scripts: dict[str, Path]) -> None:
    for words in words_of(cli.command_parser()):
        flags = [flag for option in words.options for flag in option.flags]
        for shell, script in scripts.items():
            text = script.read_text()
            marks = [flag.lstrip("-") if shell == "fish" else flag for flag in flags]
            assert [mark for mark in marks if mark not in text] == [], shell
