"""How long a commit goes on where other writers of its table are faster."""

from __future__ import annotations

import random
import time

MAX_TRIES = 30
"""How often they may be."""
_MAX_PAUSE_S = 0.2


def random_backoff() -> None:
    """Wait for a random moment, so that writers that met do not meet again.

    To be called before the table is looked at: whoever waits between the look and the commit
    that is built on it lets others make it too late, each time.
    """
    time.sleep(random.uniform(0, _MAX_PAUSE_S))
