"""Public tools for testing: what others need to prove that their own parts keep our protocols."""
