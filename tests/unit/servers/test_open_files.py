"""A server raises its limit of open files as far as the system allows."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOOK = """
import resource
from mrflight.servers.process import raise_open_file_limit
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
raise_open_file_limit()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.slow_but("64-300-300")
@pytest.mark.parametrize(
    ("soft", "hard", "expected"), [(64, 300, 300), (300, 300, 300), (299, 4000, 4000)]
)
def test_the_limit_is_raised_as_far_as_it_can_be(soft: int, hard: int, expected: int) -> None:
    code = LOOK.format(soft=soft, hard=hard)
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == [str(expected), str(hard)]
