"""What every test can ask for, and how Hypothesis looks for examples."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest
from hypothesis import settings

from tests.needed import fail_or_skip

pytest.register_assert_rewrite("tests.support")  # before any of it is imported

pytest_plugins = ["tests.services.fixtures", "tests.support.places", "tests.support.ray_head"]

CI = os.environ.get("CI") == "true"

# A failure prints what reproduces it. In CI the examples are the same in every run.
settings.register_profile("mrflight", deadline=None, print_blob=True, derandomize=CI)
settings.load_profile("mrflight")


@pytest.fixture(scope="session")
def needs_kernel() -> None:
    """The kernel in Rust: without it the test is skipped, in CI it fails."""
    if find_spec("mrflight._kernel") is None:
        fail_or_skip("the kernel in Rust is not built: install cargo, then make -B install")
