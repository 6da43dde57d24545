"""The command ``mrflight doctor``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from mrflight import driver
from mrflight.config.identity import ClientOptions, Identity
from mrflight.config.identity_options import add_identity_arguments, identity_of
from mrflight.config.locations import parse_location
from mrflight.errors import MrflightError
from mrflight.system.command_line import Command, quantity
from mrflight.system.log_output import log_to_stderr
from mrflight.system.standard_streams import print_answer
from mrflight.units import parse_seconds

if TYPE_CHECKING:
    from mrflight.frontend.doctor.finding import Finding


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
        "--cluster",
        type=quantity(parse_location),
        metavar="LOCATION",
        help="also look at the cluster of this metadata server, besides that of the job",
    )
    parser.add_argument(
        "--timeout",
        type=quantity(parse_seconds),
        default="20 s",
        metavar="TIME",
        help="how long to wait for each store and server; default 20 s",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, in one line")
    add_identity_arguments(parser)


COMMAND = Command(
    "doctor",
    "look for what this machine lacks, and say what to do",
    "Look for what this machine lacks: the kernel, extras, memory, open files, shared memory and "
    "disk space, and for what a job needs besides: its stores, its cluster, certificates and the "
    "clock. Nothing is written or started.",
    (
        "%(prog)s job.toml",
        "%(prog)s --cluster grpc+tls://metadata.example.com:5005 --tls-ca ca.pem --tls-certificate "
        "own.pem --tls-key own.key",
        "%(prog)s job.toml --json | jq -r '.findings[] | select(.state != \"ok\") | .what'",
    ),
    _add_arguments,
    "Exit codes: 0 there is no problem; 1 there is one.",
)


def run(options: argparse.Namespace) -> int:
    """Print what was found; return 1 if there is a problem."""
    from mrflight.frontend.doctor.finding import Diagnosis  # other commands need none of it

    log_to_stderr("error")
    try:
        identity = identity_of(options)
    except MrflightError as error:
        return driver.report_error(error)
    diagnosis = Diagnosis.of(list(_findings(options, identity)))
    text = msgspec.json.encode(diagnosis).decode() if options.json else diagnosis.text()
    return print_answer(text) or (diagnosis.state == "problem")


def _findings(options: argparse.Namespace, identity: Identity) -> Iterator[Finding]:
    from mrflight.frontend.doctor.installation import installation

    yield from installation()
    if options.job is None:
        yield from _of_machine(None)
    else:
        yield from _of_job(options)
    if options.cluster is not None:
        from mrflight.frontend.doctor.cluster import cluster

        yield from cluster(options.cluster, ClientOptions(identity=identity), options.timeout)


def _of_machine(spill: Path | None, *, with_ray: bool = False) -> Iterator[Finding]:
    from mrflight.frontend.doctor.machine import Folder, Machine, machine, scratch
    from mrflight.system.scratch import temporary_folder

    yield from machine(Machine.here(), with_ray=with_ray)
    setting = "TMPDIR" if spill is None else "cluster.spill_dir"
    yield scratch(Folder.at(spill or temporary_folder()), setting)


def _of_job(options: argparse.Namespace) -> Iterator[Finding]:
    from mrflight.frontend.doctor.finding import Finding
    from mrflight.frontend.doctor.job import job

    try:
        spec, folder = driver.requested_job(options)
    except MrflightError as error:
        yield from _of_machine(None)
        yield Finding(str(options.job), "problem", str(error))
        return

    spill = spec.cluster.spill_dir
    with_ray = spec.cluster.executor == "ray"
    yield from _of_machine(None if spill is None else folder / spill, with_ray=with_ray)
    yield from job(spec, folder, options.timeout)
