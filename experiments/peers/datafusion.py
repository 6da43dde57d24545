"""The clicks job in DataFusion."""

import sys
from pathlib import Path

import pyarrow as pa
from datafusion import SessionConfig, SessionContext

source, result, threads = sys.argv[1:]
session = SessionContext(SessionConfig().with_target_partitions(int(threads)))
schema = pa.schema([("url", pa.string()), ("visitor", pa.string())])
session.register_csv("visits", str(Path(source).parent), schema=schema)
session.sql(
    """
    select url, sum(case visitor when 'User' then 2 else 1 end) as clicks
    from visits group by url
    """
).write_parquet(result)
