"""What was run on the real training libraries, so that the quick tier need not run again what did not change."""
