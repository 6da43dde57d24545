"""Every measurement that is published, each rerunnable by one command."""
