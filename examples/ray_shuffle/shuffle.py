"""Counts visits by site in Ray tasks: some write into a shuffle, others read its partitions."""

import pyarrow as pa
import ray

from mrflight import Shuffle, on_ray

TASKS, PARTITIONS, ROWS, SITES = 4, 8, 500_000, 1_000


@ray.remote
def write(shuffle: Shuffle, number: int) -> None:
    """Send rows as map ``number``. Ray may run it again; the shuffle takes its rows once."""
    urls = [f"https://site-{(number + row) % SITES}.example" for row in range(ROWS)]
    with shuffle.writer(map_id=number, key=["url"]) as out:
        out.write(pa.record_batch({"url": urls}))


@ray.remote
def count(shuffle: Shuffle, partition: int) -> dict[str, int]:
    """Count the visits by site. All rows of a site are in the same partition."""
    visits = pa.Table.from_batches(shuffle.reader(partition, maps=TASKS), shuffle.schema())
    counted = visits.group_by("url").aggregate([([], "count_all")])
    return dict(zip(*(column.to_pylist() for column in counted.columns), strict=True))


def main() -> None:
    ray.init(log_to_driver=False)
    with on_ray.serving(data_servers=2, memory="256 MiB") as cluster:
        shuffle = cluster.create_shuffle("visits", partitions=PARTITIONS)
        ray.get([write.remote(shuffle, number) for number in range(TASKS)])
        while lost := shuffle.health().lost_maps:  # because a data server was lost
            ray.get([write.remote(shuffle, number) for number in lost])
        parts = ray.get([count.remote(shuffle, number) for number in range(PARTITIONS)])
        shuffle.drop()
    visits = {site: number for part in parts for site, number in part.items()}
    print(f"{sum(visits.values()):,} visits of {len(visits):,} sites")


if __name__ == "__main__":
    main()
