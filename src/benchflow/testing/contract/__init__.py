"""The parts of the sandbox contract suite, one module per promise; see `benchflow.testing.sandbox_contract`."""
