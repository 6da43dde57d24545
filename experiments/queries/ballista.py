"""The queries in Ballista: a scheduler and an executor in this process, a task for each core."""

from ballista import BallistaSessionContext, setup_test_cluster

from experiments.queries.arguments import parse_arguments
from experiments.queries.sessions import write_answer

this = parse_arguments()
host, port = setup_test_cluster()  # it has as many slots as cores
session = BallistaSessionContext(
    f"df://{host}:{port}",
    cluster_config={"datafusion.execution.target_partitions": str(this.threads)},
)
write_answer(session, this)
