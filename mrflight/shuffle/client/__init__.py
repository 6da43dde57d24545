"""The client side of shuffles: the cluster, the shuffle, its partitioners, writers and readers."""
