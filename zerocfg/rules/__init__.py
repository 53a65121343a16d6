"""The analyses: a package for each family of codes, a module for what goes wrong in one place.

Contents: A rule is a decorated function that yields findings about what it looks at (`subjects`); `registry` lists them
all, and `outside` takes those of other packages. The other modules help the bodies: keys (`key`), options of launch
lines (`line`), effective settings (`effects`), training arguments (`arguments`), admitted releases (`release_scope`),
edits.

May use: `run` and what is below it. No rule reads a file.

Begin at: `api.py`, `key.py`, `zero/stages.py`.
"""
