"""The lint of many repositories: which they are, what came of each, and what that makes together."""
