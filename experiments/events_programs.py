"""The programs that `experiments.events` measures, each in a process of its own."""

from __future__ import annotations

WITHOUT = """
from mrflight.events.recorder import Recorder
from mrflight.scheduler.server_samples import ServerSamples
from mrflight.scheduler.stage_runner import StageRunner

Recorder.keep = lambda recorder, event: None
ServerSamples._take = lambda samples, **_: None
StageRunner.submit = lambda stages, call, *words, **named: stages._executor.submit(
    call, *words, **named
)
"""

RUN = "import sys; from mrflight.driver import leave, main; leave(main(sys.argv[1:]))"

TIMED = """
import sys
import time

from mrflight.events.recorder import Recorder
from mrflight.scheduler.server_samples import ServerSamples

spent = 0.0

def timed(call):
    def run(*words, **named):
        global spent
        began = time.thread_time()
        try:
            return call(*words, **named)
        finally:
            spent += time.thread_time() - began
    return run

Recorder.keep, Recorder.read = timed(Recorder.keep), timed(Recorder.read)
ServerSamples._take = timed(ServerSamples._take)

from mrflight.driver import leave, main

code = main(sys.argv[1:])
print(spent, file=sys.stderr, flush=True)
leave(code)
"""
"""What records an event while servers are asked counts twice, so this is a little too much."""

TASKS = """
import math
from typing import NamedTuple

from mrflight.events.kinds import JobBegan
from mrflight.runtime.local.executor import LocalExecutor
from mrflight.scheduler.task_set import TaskSetSpec
from mrflight.system.fork_server.client import ForkServer
from mrflight.system.scratch import SocketFolder

class Task(NamedTuple):
    name: str

count = int(sys.argv[1])
tasks = [Task(f"map {number} (visits, visits/{number}.parquet)") for number in range(count)]
with ForkServer() as server, SocketFolder() as folder, Recorder() as events:
    events.record(JobBegan(job_id="j", name="n", version="1", host="h", pid=1))
    if len(sys.argv) > 2:
        events.write_to(Path(sys.argv[2]))
    with LocalExecutor(2, server, folder.parent_watch.path) as executor:
        stages = StageRunner(executor, events)
        spec = TaskSetSpec(tasks, lambda task, attempt: stages.submit(math.sqrt, 2.0))
        assert len(stages.run("map", spec)) == count
"""
IMPORTS = """
import sys
from pathlib import Path

from mrflight.events.recorder import Recorder
from mrflight.scheduler.stage_runner import StageRunner
"""

WAYS: dict[str, tuple[str, list[str]]] = {
    "no events": (f"{WITHOUT}\n{RUN}", []),
    "in memory": (RUN, []),
    "with a history": (RUN, ["--set", "job.events=history"]),
}
"""The program of each way, and its options."""
