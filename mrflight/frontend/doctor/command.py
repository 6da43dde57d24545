"""The command ``mrflight doctor``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import msgspec

from mrflight import driver
from mrflight.errors import MrflightError
from mrflight.frontend.doctor.finding import Diagnosis, Finding
from mrflight.system.command_line import Command, quantity
from mrflight.system.log_output import log_to_stderr
from mrflight.system.standard_streams import print_answer
from mrflight.units import parse_seconds


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "job", type=Path, nargs="?", metavar="JOB.toml", help="also look at what this job needs"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="replace a value of the job file, or add one; may be repeated",
    )
    parser.add_argument(
        "--timeout",
        type=quantity(parse_seconds),
        default="20 s",
        metavar="TIME",
        help="how long to wait for each store and server; default 20 s",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, in one line")


COMMAND = Command(
    "doctor",
    "look for what this machine lacks, and say what to do",
    "Look for what this machine lacks: the kernel, extras, memory, open files, shared memory and "
    "disk space, and for what a job needs besides: its stores, its cluster, certificates and the "
    "clock. Nothing is written or started.",
    (
        "%(prog)s job.toml",
        "%(prog)s job.toml --json | jq -r '.findings[] | select(.state != \"ok\") | .what'",
    ),
    _add_arguments,
    "Exit codes: 0 there is no problem; 1 there is one.",
)


def run(options: argparse.Namespace) -> int:
    """Print what was found; return 1 if there is a problem."""
    log_to_stderr("error")
    diagnosis = Diagnosis.of(list(_findings(options)))
    text = msgspec.json.encode(diagnosis).decode() if options.json else diagnosis.text()
    return print_answer(text) or (diagnosis.state == "problem")


def _findings(options: argparse.Namespace) -> Iterator[Finding]:
    from mrflight.frontend.doctor.installation import installation
    from mrflight.frontend.doctor.machine import Folder, Machine, default_folder, machine, scratch

    yield from installation()
    if options.job is None:
        yield from machine(Machine.here())
        yield scratch(Folder.at(default_folder()), "TMPDIR")
        return
    try:
        spec, folder = driver.requested_job(options)
    except MrflightError as error:
        yield from machine(Machine.here())
        yield Finding(str(options.job), "problem", str(error))
        return
    from mrflight.frontend.doctor.job import job

    yield from machine(Machine.here(), with_ray=spec.cluster.executor == "ray")
    spill = spec.cluster.spill_dir
    root = default_folder() if spill is None else folder / spill
    yield scratch(Folder.at(root), "cluster.spill_dir")
    yield from job(spec, folder, options.timeout)
