"""Observes an unmodified training script, and protects the user's files."""
