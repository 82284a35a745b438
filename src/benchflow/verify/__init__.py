"""How a workspace is scored: the test-script protocol, where it runs, and rewards composed from functions."""
