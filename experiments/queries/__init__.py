"""The queries of examples/tpch in other engines, each in a process of its own.

``python -m experiments.queries.ENGINE QUERY.sql DATA OUT THREADS`` reads DATA/<table>.parquet and
writes the answer to the folder OUT, as Parquet.
"""
