"""Jobs and programs on a Ray that tests share."""
