"""A sampled mutation run: how many small faults put into zerocfg do its own tests notice?

`python -m tests.mutants --package rules` (`make mutants` for all). `faults.py` lists the faults of a module as changes
of its syntax tree, `reach.py` records which test runs which line, `swap.py` puts one fault into a running process, and
`session.py` forks one process a fault out of a warm pytest session. No file is ever changed.

It stands beside the tests, not the benchmarks: what it measures is them.
"""
