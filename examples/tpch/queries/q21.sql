select s_name, count(*) as numwait
from supplier, lineitem as one, orders, nation
where s_suppkey = one.l_suppkey and o_orderkey = one.l_orderkey and o_orderstatus = 'F'
  and one.l_receiptdate > one.l_commitdate and s_nationkey = n_nationkey
  and n_name = 'SAUDI ARABIA'
  and exists (
    select 1 from lineitem as other
    where other.l_orderkey = one.l_orderkey and other.l_suppkey <> one.l_suppkey
  )
  and not exists (
    select 1 from lineitem as late
    where late.l_orderkey = one.l_orderkey and late.l_suppkey <> one.l_suppkey
      and late.l_receiptdate > late.l_commitdate
  )
group by s_name
order by numwait desc, s_name
limit 100
