"""Runs SQL over batches with DataFusion, which is imported nowhere else.

The tables of a query have the names of the inputs, and its columns those of their rows. All names
are case-sensitive.
"""
