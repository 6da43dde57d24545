"""Workers and servers as processes of this machine."""
