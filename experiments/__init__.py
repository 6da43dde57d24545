"""Every published measurement, each of which one command runs again."""
