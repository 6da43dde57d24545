"""The jobs in Spark on this machine. Its heap is the cap, or most of the memory."""

import os

from pyspark.sql import DataFrame, SparkSession, functions

from experiments.engines import delta, task

this = task.given()
installed_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
heap_bytes = this.memory_bytes or installed_bytes * 7 // 10
spark = (
    SparkSession.builder.master(f"local[{this.threads}]")
    .config("spark.driver.memory", f"{heap_bytes >> 20}m")
    .config("spark.sql.shuffle.partitions", this.partitions)
    .config("spark.local.dir", this.scratch)
    .config("spark.driver.extraJavaOptions", f"-Djava.io.tmpdir={this.scratch}")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")


def clicks() -> None:
    visits = spark.read.csv(this.input, header=True, schema="url string, visitor string")
    weight = functions.when(visits.visitor == "User", 2).otherwise(1)
    write(visits.groupBy("url").agg(functions.sum(weight).alias("clicks")))


def zipf() -> None:
    visits = spark.read.parquet(this.input).groupBy("key")
    write(visits.agg(functions.sum("value").alias("total"), functions.count("*").alias("visits")))


def repartition() -> None:
    write(spark.read.parquet(this.input).repartition(this.partitions, "l_orderkey"))
    delta.commit(this.output)


def sort() -> None:
    write(spark.read.parquet(this.input).sort("l_partkey"))


def write(rows: DataFrame) -> None:
    rows.write.parquet(this.output)


task.do(this, clicks, zipf, repartition, sort)
spark.stop()
