"""Starts the ranks and follows them to their end, whatever that is; nothing of a run outlives it."""
