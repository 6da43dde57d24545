"""What a data server holds: blocks in memory within a budget, and what is spilled to disk."""
