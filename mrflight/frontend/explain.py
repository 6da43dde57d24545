"""``mrflight explain``: the plan of a job, without running it."""

from __future__ import annotations

import argparse

from mrflight import driver
from mrflight.errors import MrflightError
from mrflight.system.command_line import Command
from mrflight.system.log_output import log_to_stderr
from mrflight.system.standard_streams import print_answer

COMMAND = Command(
    "explain",
    "print how a job would run",
    "Print how a job would run: what it reads, shuffles and writes, in how many tasks and "
    "partitions, and why. Nothing is started or written. Mistakes in the job are reported as by "
    "running it, with exit code 2.",
    ("%(prog)s job.toml", "%(prog)s job.toml --set cluster.workers=16"),
    driver.add_job_arguments,
)


def run(options: argparse.Namespace) -> int:
    """Print the plan and return the exit code."""
    from mrflight.planner.explain import explain  # loads Arrow, which most commands do not need

    log_to_stderr("warning")
    try:
        lines = explain(*driver.requested_job(options))
    except MrflightError as error:
        return driver.report_error(error)
    return print_answer("\n".join(lines))
