"""Spec files: reading and checking them, and where in them a problem is."""
