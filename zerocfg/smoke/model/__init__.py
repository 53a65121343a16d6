"""Types of a smoke-run: its reductions, sizes and certificate."""
