"""SQL over batches by DataFusion. DataFusion is imported nowhere else.

The names of columns and tables are case-sensitive, and those of the rows and inputs.
"""
