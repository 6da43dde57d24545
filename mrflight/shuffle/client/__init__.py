"""The client side of shuffles: the cluster, the shuffle, its writers and readers."""
