"""The queries in Dask's data frames on a LocalCluster in this process, with P2P shuffles.

Of the eleven queries only q18 shuffles: the groups of the others, and the small sides of their
joins, are put in one partition. If the small sides are not, Dask shuffles twice in each of q3, q5
and q12, which took 0.1 s to 0.9 s more in each of two rounds.

Of three clusters on two cores this one was the fastest at scale factor 1 in q1, q13 and q21, and
took the least CPU time in q5 and q18. Seconds of a whole run, medians of 3, with other work on the
machine:

| | q1 | q13 | q21 |
|---|---|---|---|
| threads alone, without a cluster | 2.2 | 1.1 | 1.7 |
| a worker in this process, a thread per core | 2.6 | 1.4 | 2.2 |
| the same worker in a process of its own | 3.6 | 2.6 | 3.3 |
| a process per core, of one thread | 4.4 | 3.2 | 4.0 |

Processes take a second or two to start and end. At scale factor 10 only q1 was tried, on a machine
too busy to compare seconds: CPU time was 18 to 22 s in this process, and 23 s or more in the
others.
"""

from distributed import Client, LocalCluster

from experiments.queries import dask

with (
    LocalCluster(
        processes=False,
        n_workers=1,
        threads_per_worker=dask.this.threads,
        local_directory=str(dask.this.out.parent),  # it is removed with the run
        dashboard_address=None,
    ) as cluster,
    Client(cluster),
):
    dask.write()
