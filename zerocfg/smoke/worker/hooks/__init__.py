"""Watches a training script that knows nothing of it, and keeps the user's files as they are."""
