"""Runs the stages of a job to its commit: attempts, speculation, recovery and metrics.

This room decides what runs, and what runs again. Where tasks run is the runtime's concern.
"""
