"""Iceberg tables: their schema, the commit of part files to a catalog, and offsets of streams."""
