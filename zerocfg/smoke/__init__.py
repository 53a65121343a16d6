"""Launches a config set on the real libraries and judges what really runs.

Contents: What is run and how much smaller (`prepare`), starting and following the ranks (`launch`), the ranks' program
(`worker`, which imports nothing else of zerocfg), plan against observation (`judge`), what was proved (`certify`),
other machines (`remote`), types (`model`). `smoke` takes a run through these; `compare` and `max_batch` launch several
times.

May use: `emit`, `cluster` and what is below them; with `tracer` and the programs of the ranks the only code that uses
the training libraries.

Begin at: `smoke.py`, then a package at a time.
"""
