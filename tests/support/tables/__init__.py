"""Tables and folders that jobs write, their catalogs, and stock readers of them."""
