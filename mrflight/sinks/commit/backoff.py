"""How long a commit goes on where other writers of its table are faster."""

from __future__ import annotations

import random
import time

TRIES = 30
"""How often they may be."""
_LONGEST_PAUSE_S = 0.2


def let_them_go_first() -> None:
    """Wait for a random moment, so that writers that met do not meet again.

    To be called before the table is looked at: whoever waits between the look and the commit
    that is built on it lets others make it too late, each time.
    """
    time.sleep(random.uniform(0, _LONGEST_PAUSE_S))
