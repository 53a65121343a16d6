"""The language server: what editors show while a config is typed.

Contents: Open documents (`session`, `documents`), one lint of all that is open (`checking`), and a module for each
answer. `cursor` reads half-typed text, `protocol` answers what is no message.

May use: `workspace` and what is below it. Not the command line, which starts it.

Begin at: `server.py`, `session.py`, `checking.py`.
"""
