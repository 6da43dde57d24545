"""Progress as log messages, for stderr that only programs read."""

from __future__ import annotations

import logging

from mrflight.system.progress.report import QuietProgress

log = logging.getLogger(__name__)


class LoggedProgress(QuietProgress):
    """Logs what each stage begins and has done, and notices as warnings."""

    def __init__(self) -> None:
        self._stage = ""

    def begin(self, stage: str, tasks: int, size_bytes: int = 0, at_once: int = 1) -> None:
        self._stage = stage
        log.info("%s: %d tasks", stage, tasks)

    def end(self, note: str) -> None:
        log.info("%s: %s", self._stage, note)
