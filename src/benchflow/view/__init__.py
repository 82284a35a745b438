"""Looking at results: one rollout as a single HTML file that opens anywhere."""
