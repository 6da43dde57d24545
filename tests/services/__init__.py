"""Real servers on loopback, for tests and experiments."""
