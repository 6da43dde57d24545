"""Real servers on loopback, for tests and experiments: made ready by ``make services``."""
