"""Queries, keys and rows, with the answers that they must have."""
