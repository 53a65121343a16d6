"""The engine and the launcher of a run, and the keys of the engine's config."""
