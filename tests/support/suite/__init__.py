"""How the suite itself runs: its order, its waits, and what it leaves."""
