"""The sink for tables of a DuckLake: part files, and one transaction of its catalog."""
