"""What ``experiments/peers.py`` compares: cases, inputs, runs, checks, and the page of results."""
