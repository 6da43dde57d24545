"""The queries in Dask's data frames, with threads that share what they read.

`dask_distributed` runs them on a cluster. Rows and columns are selected while reading. Decimals are
converted to doubles at once, since pandas groups decimals one by one in Python.
"""

from collections.abc import Callable
from datetime import date
from typing import Any

import dask
import dask.dataframe as dd
import pandas as pd

from experiments.queries.arguments import parse_arguments

GROUPS = 7
"""The number of row groups that are read together: about a tenth of lineitem at scale factor 1."""

MONEY = {"l_extendedprice", "l_discount", "l_quantity", "l_tax", "o_totalprice", "c_acctbal"}

Frame = Any
Filter = list[tuple[str, str, Any]]

this = parse_arguments()


def read(table: str, columns: str, filters: Filter | None = None) -> Frame:
    """Return columns of the rows that pass the filters."""
    frame = dd.read_parquet(
        this.tables[table],
        columns=columns.split(),
        filters=filters,
        dtype_backend="pyarrow",
        split_row_groups=GROUPS,
    )
    return frame.astype({name: "double[pyarrow]" for name in columns.split() if name in MONEY})


def priced(lines: Frame, name: str = "price") -> Frame:
    """Add a column with the price after the discount."""
    return lines.assign(**{name: lines.l_extendedprice * (1 - lines.l_discount)})


def between(column: str, first: date, end: date) -> Filter:
    return [(column, ">=", first), (column, "<", end)]


def q1() -> Frame:
    lines = read(
        "lineitem",
        "l_returnflag l_linestatus l_quantity l_extendedprice l_discount l_tax",
        [("l_shipdate", "<=", date(1998, 9, 2))],
    )
    lines = priced(lines)
    lines["charge"] = lines.price * (1 + lines.l_tax)
    keys = ["l_returnflag", "l_linestatus"]
    sums = lines.groupby(keys).agg(
        sum_qty=("l_quantity", "sum"),
        sum_base_price=("l_extendedprice", "sum"),
        sum_disc_price=("price", "sum"),
        sum_charge=("charge", "sum"),
        avg_qty=("l_quantity", "mean"),
        avg_price=("l_extendedprice", "mean"),
        avg_disc=("l_discount", "mean"),
        count_order=("l_quantity", "count"),
    )
    return sums.compute().reset_index().sort_values(keys)


def q3() -> Frame:
    customers = read("customer", "c_custkey", [("c_mktsegment", "==", "BUILDING")])
    orders = read(
        "orders",
        "o_orderkey o_custkey o_orderdate o_shippriority",
        [("o_orderdate", "<", date(1995, 3, 15))],
    )
    lines = read(
        "lineitem",
        "l_orderkey l_extendedprice l_discount",
        [("l_shipdate", ">", date(1995, 3, 15))],
    )
    orders = orders.merge(in_one(customers), left_on="o_custkey", right_on="c_custkey")
    found = priced(lines, "revenue").merge(
        in_one(orders), left_on="l_orderkey", right_on="o_orderkey"
    )
    keys = ["l_orderkey", "o_orderdate", "o_shippriority"]
    sums = found.groupby(keys).revenue.sum().compute().reset_index()
    first = sums.sort_values(["revenue", "o_orderdate"], ascending=[False, True]).head(10)
    return first[["l_orderkey", "revenue", "o_orderdate", "o_shippriority"]]


def q4() -> Frame:
    orders = read(
        "orders",
        "o_orderkey o_orderpriority",
        between("o_orderdate", date(1993, 7, 1), date(1993, 10, 1)),
    )
    lines = read("lineitem", "l_orderkey l_commitdate l_receiptdate")
    late = lines[lines.l_commitdate < lines.l_receiptdate][["l_orderkey"]]
    found = late.merge(in_one(orders), left_on="l_orderkey", right_on="o_orderkey")
    once = found[["o_orderkey", "o_orderpriority"]].compute().drop_duplicates()
    counts = once.groupby("o_orderpriority").size()
    return counts.rename("order_count").reset_index().sort_values("o_orderpriority")


def q5() -> Frame:
    regions = read("region", "r_regionkey", [("r_name", "==", "ASIA")])
    nations = read("nation", "n_nationkey n_regionkey n_name")
    nations = nations.merge(regions, left_on="n_regionkey", right_on="r_regionkey")
    nations = nations[["n_nationkey", "n_name"]]
    customers = read("customer", "c_custkey c_nationkey")
    customers = customers.merge(nations, left_on="c_nationkey", right_on="n_nationkey")
    orders = read(
        "orders", "o_orderkey o_custkey", between("o_orderdate", date(1994, 1, 1), date(1995, 1, 1))
    )
    orders = orders.merge(in_one(customers), left_on="o_custkey", right_on="c_custkey")
    orders = orders[["o_orderkey", "c_nationkey", "n_name"]]
    suppliers = read("supplier", "s_suppkey s_nationkey")
    lines = priced(read("lineitem", "l_orderkey l_suppkey l_extendedprice l_discount"), "revenue")
    found = lines.merge(in_one(orders), left_on="l_orderkey", right_on="o_orderkey")
    found = found.merge(
        in_one(suppliers),
        left_on=["l_suppkey", "c_nationkey"],
        right_on=["s_suppkey", "s_nationkey"],
    )
    sums = found.groupby("n_name").revenue.sum().compute().reset_index()
    return sums.sort_values("revenue", ascending=False)


def q6() -> Frame:
    lines = read(
        "lineitem",
        "l_extendedprice l_discount l_quantity",
        between("l_shipdate", date(1994, 1, 1), date(1995, 1, 1)),
    )
    cheap = (lines.l_discount > 0.045) & (lines.l_discount < 0.075) & (lines.l_quantity < 24)
    lines = lines[cheap]
    revenue = (lines.l_extendedprice * lines.l_discount).sum().compute()
    return pd.DataFrame({"revenue": [revenue]})


def q10() -> Frame:
    orders = read(
        "orders",
        "o_orderkey o_custkey",
        between("o_orderdate", date(1993, 10, 1), date(1994, 1, 1)),
    )
    lines = read("lineitem", "l_orderkey l_extendedprice l_discount", [("l_returnflag", "==", "R")])
    found = priced(lines, "revenue").merge(
        in_one(orders), left_on="l_orderkey", right_on="o_orderkey"
    )
    sums = found.groupby("o_custkey").revenue.sum().compute().reset_index()
    most = sums.sort_values("revenue", ascending=False).head(20)
    customers = read(
        "customer",
        "c_custkey c_name c_acctbal c_nationkey c_address c_phone c_comment",
        [("c_custkey", "in", most.o_custkey.tolist())],
    ).compute()
    nations = read("nation", "n_nationkey n_name").compute()
    rows = most.merge(customers, left_on="o_custkey", right_on="c_custkey")
    rows = rows.merge(nations, left_on="c_nationkey", right_on="n_nationkey")
    rows = rows.sort_values("revenue", ascending=False)
    names = "c_custkey c_name revenue c_acctbal n_name c_address c_phone c_comment"
    return rows[names.split()]


def q12() -> Frame:
    lines = read(
        "lineitem",
        "l_orderkey l_shipmode l_shipdate l_commitdate l_receiptdate",
        [
            ("l_shipmode", "in", ["MAIL", "SHIP"]),
            *between("l_receiptdate", date(1994, 1, 1), date(1995, 1, 1)),
        ],
    )
    is_late = (lines.l_commitdate < lines.l_receiptdate) & (lines.l_shipdate < lines.l_commitdate)
    late = lines[is_late][["l_orderkey", "l_shipmode"]]
    orders = read("orders", "o_orderkey o_orderpriority")
    found = orders.merge(in_one(late), left_on="o_orderkey", right_on="l_orderkey")
    is_high = found.o_orderpriority.isin(["1-URGENT", "2-HIGH"])
    found = found.assign(
        high_line_count=is_high.astype("int64"), low_line_count=(~is_high).astype("int64")
    )
    sums = found.groupby("l_shipmode")[["high_line_count", "low_line_count"]].sum().compute()
    return sums.reset_index().sort_values("l_shipmode")


def q13() -> Frame:
    orders = read("orders", "o_custkey o_comment")
    orders = orders[~orders.o_comment.str.contains("special.*requests", regex=True)]
    counts = orders.groupby("o_custkey").size().compute()
    customers = read("customer", "c_custkey").compute()
    of_each = counts.reindex(customers.c_custkey).fillna(0).astype("int64")
    rows = of_each.value_counts().rename("custdist").rename_axis("c_count").reset_index()
    return rows.sort_values(["custdist", "c_count"], ascending=False)


def q14() -> Frame:
    lines = read(
        "lineitem",
        "l_partkey l_extendedprice l_discount",
        between("l_shipdate", date(1995, 9, 1), date(1995, 10, 1)),
    )
    parts = read("part", "p_partkey p_type")
    parts = parts.assign(is_promo=parts.p_type.str.startswith("PROMO"))[["p_partkey", "is_promo"]]
    found = priced(lines).merge(in_one(parts), left_on="l_partkey", right_on="p_partkey")
    promo, every = dask.compute(found[found.is_promo].price.sum(), found.price.sum())
    return pd.DataFrame({"promo_revenue": [100 * promo / every]})


def q18() -> Frame:
    lines = read("lineitem", "l_orderkey l_quantity")
    sums = lines.groupby("l_orderkey").l_quantity.sum(split_out=GROUPS)
    large = sums[sums > 300].compute().rename("sum_qty").reset_index()
    orders = read(
        "orders",
        "o_orderkey o_custkey o_orderdate o_totalprice",
        [("o_orderkey", "in", large.l_orderkey.tolist())],
    ).compute()
    rows = orders.merge(large, left_on="o_orderkey", right_on="l_orderkey")
    customers = read(
        "customer", "c_custkey c_name", [("c_custkey", "in", rows.o_custkey.tolist())]
    ).compute()
    rows = rows.merge(customers, left_on="o_custkey", right_on="c_custkey")
    rows = rows.sort_values(["o_totalprice", "o_orderdate"], ascending=[False, True]).head(100)
    return rows[["c_name", "c_custkey", "o_orderkey", "o_orderdate", "o_totalprice", "sum_qty"]]


def q21() -> Frame:
    nations = read("nation", "n_nationkey", [("n_name", "==", "SAUDI ARABIA")])
    suppliers = read("supplier", "s_suppkey s_name s_nationkey")
    suppliers = suppliers.merge(nations, left_on="s_nationkey", right_on="n_nationkey").compute()
    orders = read("orders", "o_orderkey", [("o_orderstatus", "==", "F")])
    lines = read("lineitem", "l_orderkey l_suppkey l_commitdate l_receiptdate")
    lines = lines.assign(is_late=lines.l_receiptdate > lines.l_commitdate)
    lines = lines[["l_orderkey", "l_suppkey", "is_late"]]
    theirs = lines[lines.is_late & lines.l_suppkey.isin(suppliers.s_suppkey.tolist())]
    asked_for = theirs.merge(in_one(orders), left_on="l_orderkey", right_on="o_orderkey")
    keys = asked_for[["l_orderkey"]].compute().drop_duplicates()
    items = lines.merge(keys, on="l_orderkey").compute()
    late = items[items.is_late]
    has_several = items.groupby("l_orderkey").l_suppkey.nunique() > 1
    has_one_late = late.groupby("l_orderkey").l_suppkey.nunique() == 1
    both = has_several & has_one_late.reindex(has_several.index, fill_value=False)
    found = late[late.l_orderkey.isin(both[both].index)].merge(
        suppliers, left_on="l_suppkey", right_on="s_suppkey"
    )
    counts = found.groupby("s_name").size().rename("numwait").reset_index()
    return counts.sort_values(["numwait", "s_name"], ascending=[False, True]).head(100)


def in_one(frame: Frame) -> Frame:
    """Put the small side of a join in one partition, so that the other side is not shuffled."""
    return frame.repartition(npartitions=1)


QUERIES: dict[str, Callable[[], Frame]] = {
    each.__name__: each for each in (q1, q3, q4, q5, q6, q10, q12, q13, q14, q18, q21)
}


def write() -> None:
    """Write the answer, with the scheduler that is set."""
    answer = QUERIES[this.name]()
    this.out.mkdir()
    answer.to_parquet(this.out / "answer.parquet", index=False)


if __name__ == "__main__":
    with dask.config.set(scheduler="threads", num_workers=this.threads):
        write()
