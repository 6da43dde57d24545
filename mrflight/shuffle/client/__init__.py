"""What users of a shuffle hold: the cluster, the shuffle, its writers and readers."""
