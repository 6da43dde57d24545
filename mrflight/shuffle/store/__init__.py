"""The block store of a data server: blocks in memory within a budget, and spilled blocks."""
