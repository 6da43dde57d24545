"""What people call: the Python API and the subcommands of ``mrflight``."""
