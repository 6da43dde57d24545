"""Shows the progress of a job: bars on a terminal and in a notebook, plain lines elsewhere.

One `ProgressReport` is made for a job and handed to everything that has something to report.
"""

from mrflight.system.progress.choice import progress_for, progress_here
from mrflight.system.progress.logged import LoggedProgress
from mrflight.system.progress.report import (
    NO_WORK,
    ProgressReport,
    QuietProgress,
    Work,
)

__all__ = [
    "NO_WORK",
    "LoggedProgress",
    "ProgressReport",
    "QuietProgress",
    "Work",
    "progress_for",
    "progress_here",
]
