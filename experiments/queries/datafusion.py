"""The queries in DataFusion: SQL over registered files, with as many partitions as cores."""

from datafusion import SessionConfig, SessionContext

from experiments.queries.arguments import parse_arguments

this = parse_arguments()
session = SessionContext(SessionConfig().with_target_partitions(this.threads))
for name, path in this.tables.items():
    session.register_parquet(name, path)
this.out.mkdir()
session.sql(this.sql).write_parquet(str(this.out / "answer.parquet"))
