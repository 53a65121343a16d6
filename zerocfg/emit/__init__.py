"""Writes the files of a plan; decides nothing.

Contents: A module for each format: accelerate YAML, DeepSpeed JSON, recipe, launch scripts, jobs of clusters, and the
lock. `emit_run` makes the files of one run, `verify` reads back what was emitted, `exclusive` keeps other builds out
of the folder. What lint says of them is asked by `workspace.compile_runs`.

May use: `resolve` and what is below it, but for the linter.

Begin at: `files.py`, `lock.py`.
"""
