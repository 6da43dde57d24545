"""Job files as text, and what loading them says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mrflight.config.job_file import load_job
from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError

MINIMAL = """
[job]
name = "clicks"

[inputs.visits]
path = "visits/*.csv"

[output]
table = "out/clicks"
"""

Load = Callable[..., JobSpec]


def loader(folder: Path) -> Load:
    """Writes a job file and loads it."""

    def write_and_load(text: str, overrides: dict[str, Any] | None = None) -> JobSpec:
        path = folder / "job.toml"
        path.write_text(text, encoding="utf-8")
        return load_job(path, overrides)

    return write_and_load


def refusal(load: Load, text: str, overrides: dict[str, Any] | None = None) -> str:
    """Return the message with which a job file is refused."""
    with pytest.raises(JobFileError) as refused:
        load(text, overrides)
    return str(refused.value)
