"""Tasks: what is to be solved, where, and how it is scored; the format, and where tasks come from."""
