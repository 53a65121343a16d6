"""Converting a config to another form or engine: edits of its files, and what becomes of every key."""
