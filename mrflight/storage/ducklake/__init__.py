"""DuckLake catalogs, through a child process that has DuckDB with its ducklake extension."""
