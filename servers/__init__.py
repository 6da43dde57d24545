"""The processes that a cluster keeps running: the metadata server and the data servers."""
