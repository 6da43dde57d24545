"""``experiments/timed_process.py`` loses no process out of sight."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from tests.support.commands.experiments import ROOT

pytestmark = pytest.mark.soak


class TestTimedProcess:
    """``experiments/timed_process.py`` loses no process out of sight."""

    DETACHED = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    held = bytearray(64 << 20)  # the memory of a daemon that its starter does not wait for
    while time.process_time() < 1.0:  # it is looked at several times
        pass
    open(sys.argv[1], "w").write(str(os.getpid()))
    time.sleep(600)
while not os.path.exists(sys.argv[1]) or not open(sys.argv[1]).read():
    time.sleep(0.01)
if sys.argv[2] == "stays":
    time.sleep(600)
sys.exit(3)
"""

    @pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives orphans a new parent")
    @pytest.mark.parametrize(("starter", "exit_code"), [("ends", 3), ("stays", None)])
    def test_a_daemon_is_counted_and_ended(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        starter: str,
        exit_code: int | None,
    ) -> None:
        monkeypatch.syspath_prepend(str(ROOT))
        from experiments import timed_process

        pid_file = tmp_path / "pid"
        command = [sys.executable, "-c", self.DETACHED, str(pid_file), starter]
        timed = timed_process.measure(command, 60.0 if exit_code else 15.0)
        assert timed.exit_code == exit_code
        assert timed.cpu_s >= 1.0
        assert timed.peak_rss_bytes > 64 << 20
        assert timed.peak_pss_bytes is not None
        assert timed.peak_pss_bytes > 64 << 20
        assert not psutil.pid_exists(int(pid_file.read_text()))

    def test_says_what_a_failed_process_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(str(ROOT))
        from experiments import timed_process

        command = [sys.executable, "-c", "import sys; print('out'); sys.exit('the reason')"]
        timed = timed_process.measure(command, 60.0)
        assert (timed.exit_code, timed.stdout, timed.stderr) == (1, "out\n", "the reason\n")
        with pytest.raises(RuntimeError, match="the reason"):
            timed_process.run(command, 60.0)
