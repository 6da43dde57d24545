"""Streams to which much is done while they run."""
