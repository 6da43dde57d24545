"""The parts of ``experiments/streams.py``: what lakehouse tables take of a stream."""
