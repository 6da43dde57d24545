"""The jobs in PyArrow: Acero's group-by while batches are read, its dataset writer, and its sort.

PyArrow has no memory limit, and its sort holds all rows.
"""

import pyarrow as pa
import pyarrow.acero as ac
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from experiments.engines import task

this = task.given()
pa.set_cpu_count(this.threads)
pa.set_io_thread_count(this.threads)


def clicks() -> None:
    types = {"url": pa.string(), "visitor": pa.string()}
    options = pacsv.ConvertOptions(column_types=types)
    visits = ds.dataset(this.input, format=ds.CsvFileFormat(convert_options=options))
    weight = pc.if_else(pc.equal(pc.field("visitor"), "User"), 2, 1)
    columns = {"url": pc.field("url"), "weight": weight}
    write(grouped(visits, columns, "url", [("weight", "hash_sum", None, "clicks")]))


def zipf() -> None:
    columns = {"key": pc.field("key"), "value": pc.field("value")}
    sums = [("value", "hash_sum", None, "total"), ("value", "hash_count", None, "visits")]
    write(grouped(ds.dataset(this.input), columns, "key", sums))


def repartition() -> None:
    from deltalake import write_deltalake

    lineitem = ds.dataset(this.input)
    hashed = pc.divide(pc.multiply(pc.field("l_orderkey"), 2654435761), 65536)
    part = pc.subtract(hashed, pc.multiply(pc.divide(hashed, this.partitions), this.partitions))
    columns = {name: pc.field(name) for name in lineitem.schema.names}
    rows = lineitem.scanner({**columns, "part": part}).to_reader()
    write_deltalake(this.output, rows, partition_by=["part"])


def sort() -> None:
    write(ds.dataset(this.input).to_table().sort_by("l_partkey"))


def grouped(
    rows: ds.Dataset, columns: dict[str, pc.Expression], key: str, sums: list[tuple]
) -> pa.Table:
    steps = [
        ac.Declaration("scan", ac.ScanNodeOptions(rows, columns=columns)),
        ac.Declaration("project", ac.ProjectNodeOptions(list(columns.values()), list(columns))),
        ac.Declaration("aggregate", ac.AggregateNodeOptions(sums, keys=[key])),
    ]
    return ac.Declaration.from_sequence(steps).to_table(use_threads=True)


def write(rows: pa.Table) -> None:
    pq.write_table(rows, this.result("part-0.parquet"))


task.do(this, clicks, zipf, repartition, sort)
