"""Text for a terminal: what it can show, tables that fit it, and progress."""
