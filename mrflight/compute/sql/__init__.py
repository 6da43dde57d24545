"""SQL over batches, by DataFusion: the one place where it is imported.

Columns and tables are called as the rows and inputs have them, in upper and lower case.
"""
