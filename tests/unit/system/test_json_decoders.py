"""Threads that decode the same messages for the first time do not crash their process."""

from __future__ import annotations

import subprocess
import sys

MESSAGES = """
from __future__ import annotations
from mrflight.shuffle.wire.protocol import Message

class Inner(Message, frozen=True):
    a: dict[str, list[int]] = {}
    b: tuple[int, str] | None = None

class Left(Message, frozen=True):
    inner: Inner
    others: list[Inner] = []

class Right(Message, frozen=True):
    inner: Inner
    left: Left | None = None
"""

PROGRAM = f"""
import sys
import threading

from mrflight.shuffle.wire import protocol

sys.setswitchinterval(1e-6)
for number in range(150):
    module = type(sys)(f"messages_{{number}}")
    sys.modules[module.__name__] = module
    exec({MESSAGES!r}, vars(module))
    barrier = threading.Barrier(6)

    def decode(kind):
        barrier.wait()
        body = b'{{"inner": {{"a": {{"x": [1]}}, "b": [1, "y"]}}}}'
        assert protocol.decode(body, kind).inner.b == (1, "y")

    kinds = [module.Left, module.Right] * 3
    threads = [threading.Thread(target=decode, args=(kind,)) for kind in kinds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("done")
"""


def test_threads_decode_new_messages_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
