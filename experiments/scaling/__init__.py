"""A job of many maps and partitions without its data: driver, planner and metadata server."""
