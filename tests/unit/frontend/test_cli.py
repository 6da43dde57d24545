"""Tests of the ``mrflight`` command: its help, its version, and exit codes of its subcommands."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from mrflight import driver
from mrflight.config import server_options
from mrflight.errors import InputError, MrflightError, StoreError
from mrflight.frontend import cli, installation

HELP = ["", "run", "sql", "explain", "serve", "serve metadata", "serve data", "status", "clean"]
CERTIFICATES = ["certificates", *(f"certificates {x}" for x in ("init", "issue", "token"))]
MODULES = {
    "mrflight.driver": driver.COMMAND,
    "mrflight.servers.metadata": server_options.METADATA,
    "mrflight.servers.data": server_options.DATA,
}


@pytest.mark.parametrize("command", [*HELP, "maintain", "doctor", *CERTIFICATES])
def test_the_help_of_a_command_has_its_name_and_examples(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([*command.split(), "--help"])
    shown = capsys.readouterr().out
    name = f"mrflight {command}".rstrip()
    assert ended.value.code == 0
    assert shown.startswith(f"usage: {name} ")
    assert re.search(rf"^examples?:\n  {name} ", shown, re.MULTILINE)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_that_is_run_has_its_own_name(module: str) -> None:
    shown = MODULES[module].parser(f"python -m {module}").format_help()
    assert shown.startswith(f"usage: python -m {module} ")
    assert f"  python -m {module} " in shown.partition("example")[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("serve", "mrflight serve: error: the following arguments are required: SERVER"),
        ("serve data", "mrflight serve data: error: the following arguments are required: --meta"),
        ("serve metadata --port x", "mrflight serve metadata: error: argument --port: invalid"),
        ("serve data --memory 1", "mrflight serve data: error: the following arguments"),
        ("serve metadata --drain-timeout soon", "argument --drain-timeout: 'soon' is not a time"),
        ("run", "mrflight run: error: the following arguments are required: JOB.toml"),
        ("run job.toml -q -v", "argument -v/--verbose: not allowed with argument -q/--quiet"),
        ("ruin", "mrflight: error: argument COMMAND: invalid choice: 'ruin'"),
    ],
)
def test_wrong_arguments_are_told_by_the_command_that_was_typed(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments.split())
    shown = capsys.readouterr().err
    assert ended.value.code == 2
    assert message in shown
    assert shown.startswith("usage: mrflight")


@pytest.mark.parametrize("kernel", [True, False])
def test_the_version_says_what_is_installed(
    kernel: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(installation, "kernel_language", lambda: "rust" if kernel else "python")
    monkeypatch.setattr(installation, "requires", lambda _: REQUIREMENTS)
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.splitlines() == [
        "mrflight 0.1.0",
        f"kernel: {'native (Rust)' if kernel else 'in Python, which is slower'}",
        f"pyarrow {version('pyarrow')}, Python {'.'.join(map(str, sys.version_info[:3]))}",
        f"extras: delta (deltalake {version('deltalake')})",
        "not installed: moon",
    ]


REQUIREMENTS = [
    "pyarrow>=20",
    'deltalake>=1.0; extra == "delta"',
    'deltalake>=1.0; extra == "moon"',
    "no-such-package>=1; extra == 'moon'",
    'pytest<9.2,>=8; extra == "dev"',
]


@pytest.mark.parametrize("arguments", ["--help", "--version", "run --help", "serve data --help"])
def test_help_that_cannot_be_written_ends_in_one_line(
    arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments.split())
    assert ended.value.code == 3
    assert capsys.readouterr().err == (
        "mrflight: the answer could not be written to stdout: [Errno 28] No space left on device\n"
    )


def test_help_in_a_closed_pipe_ends_in_one_line() -> None:
    line = f"{sys.executable} -m mrflight --help | exec 0<&-; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (3, "")
    assert re.fullmatch(r"mrflight: the answer could not .*Errno 32.*\n", ended.stderr)


@pytest.mark.parametrize(
    ("options", "level"),
    [
        ("", "warning"),
        ("-v", "info"),
        ("-vv", "debug"),
        ("-vvv", "debug"),
        ("-q", "error"),
        ("--log-level debug", "debug"),
        ("-q --log-level info", "info"),
        ("-v --log-level error", "error"),
    ],
)
def test_the_level_of_log_messages(options: str, level: str) -> None:
    assert (
        driver.log_level(cli.command_parser().parse_args(["run", "j", *options.split()])) == level
    )


@pytest.mark.parametrize(
    ("error", "code"), [(StoreError("the disk is gone"), 1), (InputError("no such folder"), 2)]
)
def test_clean_ends_with_the_code_of_its_error(
    error: MrflightError,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("mrflight.sinks.orphan_files.find_orphan_files", fail)
    assert cli.main(["clean", str(tmp_path)]) == code
    assert capsys.readouterr().err == f"mrflight: {error}\n"


@pytest.mark.slow_but("clean")
@pytest.mark.parametrize("command", ["explain", "clean", "maintain"])
def test_an_answer_that_cannot_be_written_has_its_own_code(tmp_path: Path, command: str) -> None:
    write_deltalake(tmp_path / "out", pa.table({"n": [1]}))
    (tmp_path / "out" / "part-00000-0-20200101T000000-aaaaaaaaaaaa.parquet").write_text("left")
    (tmp_path / "job.toml").write_text(
        '[job]\nname = "j"\n[inputs.a]\npath = "out"\nkey = ["n"]\n[output]\ntable = "b"\n'
    )
    arguments = ["job.toml"] if command == "explain" else ["out"]
    if command == "clean":
        arguments += ["--remove", "--older-than", "0 s"]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "mrflight", command, *arguments],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (ended.returncode, ended.stderr.splitlines()) == (
        3,
        ["mrflight: the answer could not be written to stdout: [Errno 28] No space left on device"],
    )
    assert len(list((tmp_path / "out").glob("part-00000-0-2020*"))) == 1
