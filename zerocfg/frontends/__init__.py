"""Frameworks around the libraries that have recipes and programs of their own: a module for each.

Contents: The interface (`api`): which files, lines and calls are a framework's own, what of them reaches the library
that trains, which keys it has by release. `registry` knows zerocfg's own front ends and those of installed packages
(`outside`).

May use: `source` and `catalog`. A front end knows no run: `run` makes arguments of what it returns.

Begin at: `api.py`, `llamafactory.py`; `docs/front-ends.md` for one in a package of its own.
"""
