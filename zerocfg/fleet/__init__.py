"""The lint of many repositories, as data.

Contents: Which they are (`listing`), processes that may break (`pool`), shares of workers (`shares`), the outcome of
each (`model`) and of all (`summary`, `changes`), as text, JSON and SARIF. `zerocfg.cli.fleet` lints them.

May use: `report` and what is below it.

Begin at: `model.py`, `summary.py`.
"""
