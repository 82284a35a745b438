"""The command line: one file per resource; each parses, calls one function and prints."""
