"""Says in words how a job would be run: what is read, moved and made, in how many pieces, and why.

Nothing is started or written. A mistake in the job is told as running it would, with exit code 2.
"""

from __future__ import annotations

import argparse
import logging
import sys

from mrflight import driver
from mrflight.errors import JobError, MrflightError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``mrflight explain``."""
    driver.add_job_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """The exit code, as those of a job."""
    from mrflight.planner.explain import explain  # which needs Arrow, and most commands do not

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        spec, folder = driver.requested_job(options)
        told = explain(spec, folder)
    except MrflightError as error:
        sys.stderr.write(f"mrflight: {driver.message(error)}\n")
        return driver.EXIT_WRONG_JOB if isinstance(error, JobError) else driver.EXIT_FAILED
    sys.stdout.write("\n".join(told) + "\n")
    return 0
