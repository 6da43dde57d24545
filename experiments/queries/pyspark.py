"""The queries in Spark on this machine, with two shuffle partitions per core and no UI."""

from pyspark.sql import SparkSession

from experiments.queries.arguments import parse_arguments

this = parse_arguments()
scratch = str(this.out.parent)
spark = (
    SparkSession.builder.master(f"local[{this.threads}]")
    .config("spark.driver.memory", "4g")
    .config("spark.sql.shuffle.partitions", 2 * this.threads)
    .config("spark.local.dir", scratch)
    .config("spark.driver.extraJavaOptions", f"-Djava.io.tmpdir={scratch}")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
for name, path in this.tables.items():
    spark.read.parquet(path).createOrReplaceTempView(name)
for view in this.views:
    spark.sql(view.replace("create view", "create temporary view"))
spark.sql(this.sql).coalesce(1).write.parquet(str(this.out))
spark.stop()
