"""Training scripts, read and never imported: who reads the configs, and what the code says about the run."""
