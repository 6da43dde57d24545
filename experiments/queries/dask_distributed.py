"""Dask's data frames on a LocalCluster in this process, where shuffles go by P2P.

Of the eleven queries q18 has one: the others' groups, and the small sides of their joins, are put
in one partition. Without the latter Dask shuffles twice in each of q3, q5 and q12, which took 0.1 s
to 0.9 s more in either of two rounds.

Of three clusters on two cores this was the fastest at scale factor 1 in each of q1, q13 and q21,
and took least CPU time of q5 and q18 as well. Seconds of a whole run, medians of 3, with other work
on the machine:

| | q1 | q13 | q21 |
|---|---|---|---|
| threads alone, without a cluster | 2.2 | 1.1 | 1.7 |
| a worker in this process, a thread per core | 2.6 | 1.4 | 2.2 |
| the same worker in a process of its own | 3.6 | 2.6 | 3.3 |
| a process per core, of one thread | 4.4 | 3.2 | 4.0 |

Processes take a second or two to start and end. At scale factor 10 only q1 was tried, on a machine
too busy to tell seconds: CPU time was 18 to 22 s in this process, 23 s and more in others.
"""

from distributed import Client, LocalCluster

from experiments.queries import dask

with (
    LocalCluster(
        processes=False,
        n_workers=1,
        threads_per_worker=dask.this.threads,
        local_directory=str(dask.this.out.parent),  # it goes with the run
        dashboard_address=None,
    ) as cluster,
    Client(cluster),
):
    dask.write()
