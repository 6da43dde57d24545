"""Run a query in DataFusion in one process, and print its rows as an Arrow stream.

python -m experiments.tpcds.alone QUERY.sql DATA PARTITIONS
"""

import sys
from pathlib import Path

import pyarrow as pa
from datafusion import SessionConfig, SessionContext

query, data, partitions = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
# As mrflight has it for tables without floats: 0.9 is a decimal.
options = {"datafusion.sql_parser.parse_float_as_decimal": "true"}
session = SessionContext(SessionConfig(options).with_target_partitions(partitions))
for path in data.glob("*.parquet"):
    session.register_parquet(path.stem, str(path))
rows = session.sql(query.read_text())
batches = [batch.to_pyarrow() for batch in rows.execute_stream()]
schema = batches[0].schema if batches else rows.schema()
with pa.ipc.new_stream(sys.stdout.buffer, schema) as out:
    for batch in batches:
        out.write_batch(batch)
