"""Workers and servers as actors of Ray, and the shuffle inside programs on Ray."""
