"""Operators over streams of rows in bounded memory: group, join, sort, top-k, SQL."""
