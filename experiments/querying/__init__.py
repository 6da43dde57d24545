"""The parts of the experiment on queries in SQL."""
