"""Part files: how the rows of a task become files of a format, by partition value. No commits."""
