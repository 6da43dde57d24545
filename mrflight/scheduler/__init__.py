"""Runs the stages of a job to its commit: attempts, speculation, recovery and progress.

It decides what runs again and when; a runtime says where.
"""
