"""Part files: how the rows of one task become files of a format, partitioned by value."""
