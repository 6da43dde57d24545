"""The queries in DataFusion: SQL over registered files, with as many partitions as cores.

Under a limit of memory it has the pool that lets operators spill, and else its own options.
"""

from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext

from experiments.queries.arguments import parse_arguments
from experiments.queries.sessions import write_answer

this = parse_arguments()
runtime = None
if this.memory_bytes is not None:
    runtime = RuntimeEnvBuilder().with_temp_file_path(str(this.out.parent))
    runtime = runtime.with_fair_spill_pool(this.memory_bytes)
session = SessionContext(SessionConfig().with_target_partitions(this.threads), runtime)
write_answer(session, this)
