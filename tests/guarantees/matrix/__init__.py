"""One fault at one step of one record's line, and how it ends; `test_matrix.py` has the table."""
