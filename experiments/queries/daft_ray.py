"""The queries in Daft's SQL on a Ray of this machine, which each run starts and ends."""

import os

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # it would call home

import ray

from experiments.queries import daft

ray.init(
    num_cpus=daft.this.threads,
    include_dashboard=False,
    logging_level="ERROR",
    log_to_driver=False,
    _temp_dir=str(daft.this.out.parent),  # it is removed with the run
)
daft.daft.set_runner_ray()
daft.write()
ray.shutdown()
os._exit(0)  # as in `daft`
