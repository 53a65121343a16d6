"""Runs the rules over runs, and fixes and suppresses what they find.

Contents: The choice of rules (`concerned`, `selection`, `applicability`), findings as diagnostics (`engine`), what the
next lint of the same files can use again (`kept`), suppression by comments and baselines (`ignores`, `add_ignores`,
`baseline`), fixes (`fixing`, `independent`, `fixed_texts`, `fix_outcome`, `reader_agreement`), and the releases in
which a finding holds (`release_ranges`).

May use: `rules`, `rulebook` and what is below them. It neither prints nor writes.

Begin at: `engine.py`, then `fixing.py`.
"""
