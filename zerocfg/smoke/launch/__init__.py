"""Starts the ranks, follows them until they end, and cleans up after them."""
