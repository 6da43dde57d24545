"""Commits to a folder of parquet, csv or arrow files by numbered manifests. No Delta tables."""
