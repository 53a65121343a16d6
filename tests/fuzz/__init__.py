"""Hostile inputs by the hundred thousand, and what must hold for each of them: see `__main__`."""
