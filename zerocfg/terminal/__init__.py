"""Text for a terminal: what it can show, tables that fit it, and progress.

Contents: The standard streams, made harmless and free of secrets (`streams`), tables and wrapped text (`table`), a
line about long work (`progress`).

May use: `source`. It knows no command.

Begin at: `streams.py`, `table.py`.
"""
