"""How messages of each format become rows."""
