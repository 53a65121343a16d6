"""Pure functions from diagnostics to text."""
