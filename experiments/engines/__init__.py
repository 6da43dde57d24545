"""The jobs of the comparison, as an expert in each engine would write them.

Each engine is a script: ``python -m experiments.engines.NAME TASK.json``.
"""
