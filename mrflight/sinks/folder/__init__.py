"""Commits to a folder of plain files (parquet, csv, arrow) by numbered manifests."""
