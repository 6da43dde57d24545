"""Streams of events, the jobs that ingest them, and their readers."""
