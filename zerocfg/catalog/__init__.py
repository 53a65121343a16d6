"""The compiled form of the typed models, and the checks of keys, types and ranges that read it."""
