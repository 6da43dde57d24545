"""The comparison of ``experiments/peers.py``: cases, inputs, runs, checks and the results page."""
