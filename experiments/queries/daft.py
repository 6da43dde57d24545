"""The queries in Daft's SQL, with its native runner. Views come before the query, in a ``with``.

`daft_ray` runs them on Ray.
"""

import os

os.environ["DAFT_PROGRESS_BAR"] = "0"
os.environ["DO_NOT_TRACK"] = "1"  # otherwise it sends telemetry before it works

import daft

from experiments.queries.arguments import parse_arguments

DOUBLES = ("q1", "q8", "q9", "q14")
"""Daft 0.7.26 refuses these with decimals: results have more than 38 digits, or a ``case`` has
a decimal and an integer. So decimals are converted to doubles as they are read, as for Dask."""

this = parse_arguments()


def read(path: str) -> daft.DataFrame:
    table = daft.read_parquet(path)
    if this.name not in DOUBLES:
        return table
    decimals = [field.name for field in table.schema() if field.dtype.is_decimal128()]
    double = daft.DataType.float64()
    return table.with_columns({name: daft.col(name).cast(double) for name in decimals})


def write() -> None:
    """Write the answer, with the runner that is set."""
    named = [view.strip().removeprefix("create view ").split(" as", 1) for view in this.views]
    views = ", ".join(f"{name} as ({query})" for name, query in named)
    tables = {name: read(path) for name, path in this.tables.items()}
    answer = daft.sql(f"with {views} {this.sql}" if views else this.sql, **tables)
    answer.write_parquet(str(this.out))


if __name__ == "__main__":
    daft.set_runner_native(num_threads=this.threads)
    write()
    os._exit(0)  # one process in ten crashed while Python ended, with its answer written
