"""Event logs of a data server: segments, group commit, producers. Nothing here calls anyone."""
