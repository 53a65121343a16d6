"""The engine and the launcher of a run, and what the engine's config says."""
