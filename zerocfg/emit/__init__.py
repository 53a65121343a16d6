"""Writes the files of a plan; decides nothing.

Contents: A module for each format: accelerate YAML, DeepSpeed JSON, recipe, launch scripts, jobs of clusters, and the
lock. `compile_runs` judges the runs of a spec together, `verify` reads back what was emitted, `exclusive` keeps other
builds out of the folder.

May use: `resolve`, `linter` and what is below them.

Begin at: `files.py`, `lock.py`.
"""
