"""``mrflight explain``: prints the plan of a job without running it."""

from __future__ import annotations

import argparse
import logging
import sys

from mrflight import driver
from mrflight.errors import JobError, MrflightError

DESCRIPTION = (
    "Print how a job would run: what it reads, shuffles and writes, in how many tasks and "
    "partitions, and why. Nothing is started or written. Mistakes in the job are reported as by "
    "running it, with exit code 2."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``mrflight explain``."""
    driver.add_job_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Print the plan; the exit codes are those of a job."""
    from mrflight.planner.explain import explain  # loads Arrow, which most commands do not need

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        spec, folder = driver.requested_job(options)
        lines = explain(spec, folder)
    except MrflightError as error:
        sys.stderr.write(f"mrflight: {driver.message(error)}\n")
        return driver.EXIT_WRONG_JOB if isinstance(error, JobError) else driver.EXIT_FAILED
    sys.stdout.write("\n".join(lines) + "\n")
    return 0
