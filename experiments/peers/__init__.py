"""The clicks job as someone who knows the tool would write it; each is run as a process.

``python -m experiments.peers.NAME CSV_GLOB RESULT THREADS`` leaves parquet at RESULT.
"""
