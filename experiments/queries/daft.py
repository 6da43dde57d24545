"""The queries in Daft's SQL, with its native runner. It has no views: they come before the query.

`daft_ray` runs them on Ray.
"""

import os

os.environ["DAFT_PROGRESS_BAR"] = "0"
os.environ["DO_NOT_TRACK"] = "1"  # otherwise it sends telemetry before it works

import daft

from experiments.queries.arguments import parse_arguments

this = parse_arguments()


def write() -> None:
    """Write the answer, with the runner that is set."""
    named = [view.strip().removeprefix("create view ").split(" as", 1) for view in this.views]
    views = ", ".join(f"{name} as ({query})" for name, query in named)
    tables = {name: daft.read_parquet(path) for name, path in this.tables.items()}
    answer = daft.sql(f"with {views} {this.sql}" if views else this.sql, **tables)
    answer.write_parquet(str(this.out))


if __name__ == "__main__":
    daft.set_runner_native(num_threads=this.threads)
    write()
