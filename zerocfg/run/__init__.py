"""Which files belong together, who reads them, and what the training process finally gets.

Contents: Finding and recognising files (`discover`, `kinds`), making runs of them (`link`, `linking`), reading scripts
without importing them (`script`), the releases that a project admits (`requirements`, `releases`), and the effective
settings with their origins (`resolve_settings`, and a module for each step to the process in `stages`). A `Run` is
immutable: every step returns a new one.

May use: `source` and `catalog`. It prints nothing.

Begin at: `model.py`, `link.py`, `resolve_settings.py`; then `linking/follow.py`, `stages/launcher.py`,
`script/reading.py`, `requirements/declared.py`.
"""
