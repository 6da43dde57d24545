"""The queries in Ballista: a scheduler and an executor in this process, a task for each core."""

from ballista import BallistaSessionContext, setup_test_cluster

from experiments.queries.arguments import parse_arguments

this = parse_arguments()
host, port = setup_test_cluster()  # it has as many slots as cores
session = BallistaSessionContext(
    f"df://{host}:{port}",
    cluster_config={"datafusion.execution.target_partitions": str(this.threads)},
)
for name, path in this.tables.items():
    session.register_parquet(name, path)
for view in this.views:
    session.sql(view)
this.out.mkdir()
session.sql(this.sql).write_parquet(str(this.out / "answer.parquet"))
