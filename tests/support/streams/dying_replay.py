"""A replay of dead letters that ends as it calls a function of its module.

python -m tests.support.streams.dying_replay ingest JOB.toml FUNCTION
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mrflight.config.job_file import load_job
from mrflight.streams import replay
from mrflight.streams.stream_job import StreamJob

EXIT_CODE = 9

if __name__ == "__main__":
    _, _, file, function = sys.argv
    setattr(replay, function, lambda *given: os._exit(EXIT_CODE))
    job = Path(file)
    replay.replay_rejected(StreamJob.of(load_job(job, {}), job.parent))
