"""DataFusion's physical plans as bytes: what is in them, and how parts of them are replaced."""
