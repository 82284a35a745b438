"""Where agents run: one protocol (`base`), one module per backend, one registry."""
