"""A first spec for a repository."""
