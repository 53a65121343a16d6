"""From one set of releases to another: what changes for a run, and the edits that keep what its files mean.

Contents: The changes that matter to a run (`impact`), the edits put together (`migration`, from `arguments`,
`configs`, `code`, `kept`, `pins`), and a look at the result (`outcome`). It edits nothing by itself.

May use: `compare` and what is below it. No build, no smoke-run.

Begin at: `impact.py`, `migration.py`.
"""
