"""Fixtures of the tests of the kernel."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import pytest

from mrflight.compute import kernel


@pytest.fixture(params=["rust", "python"], scope="module")
def each_kernel(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run each test with the kernel in Rust, and with the reference."""
    if request.param == "rust":
        request.getfixturevalue("needs_kernel")
    module = {
        "rust": "mrflight.compute.kernel.native",
        "python": "mrflight.compute.kernel.reference",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "_kernel", import_module(module[request.param]))
        yield
