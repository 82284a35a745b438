"""Sidecars that run next to the agent: which there are, how they are started, the MCP reviewer."""
