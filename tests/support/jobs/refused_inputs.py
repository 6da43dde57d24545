"""Inputs that cannot be read, and the errors that say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mrflight.config.input_spec import InputSpec
from mrflight.errors import JobError
from mrflight.sources import open_source
from mrflight.sources.base import Source


def failure(folder: Path, name: str, split_bytes: int = 1 << 30, **spec: Any) -> JobError:
    """Return the error of opening an input and reading all of it."""
    with pytest.raises(JobError) as raised:
        read(open_source("visits", InputSpec(path=name, **spec), folder, {}, split_bytes))
    return raised.value


def read(source: Source, since: int = 0) -> None:
    for split in source.splits[since:]:
        list(source.reader.read(split))
