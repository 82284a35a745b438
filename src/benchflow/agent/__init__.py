"""Who runs: the catalog of agents (one data file each), their bundles, and the credentials they need."""
