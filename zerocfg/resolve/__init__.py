"""Fills every `auto` and chooses what the author leaves open; every value has its provenance.

Contents: Specs (`spec`), what a run is resolved from (`inputs`, `collect_inputs`), engine and launcher (`engine`),
what decides memory and time (`model`), the search for a plan (`search`), how long the training is (`training_steps`),
the result (`plan`, `provenance`), its explanation for people (`explain`), and a first spec (`init`).

May use: `run`, `rules`, `memory`, `hardware` and what is below them. It writes no file.

Begin at: `build.py`, `resolve.py`, then `search/choose.py`.
"""
