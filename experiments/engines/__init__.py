"""The jobs of the comparison as someone who knows the tool would write them.

Each engine is a script: ``python -m experiments.engines.NAME TASK.json``.
"""
