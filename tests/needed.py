"""What a test needs and does not find."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def fail_or_skip(reason: str) -> NoReturn:
    """In CI it fails, as nothing is left out there; elsewhere the test is skipped."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
