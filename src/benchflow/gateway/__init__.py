"""How an agent inside a sandbox reaches its model."""
