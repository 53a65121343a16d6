"""The pages of the rules: text, examples and proof.

Contents: The reader of `docs/rules/*.md` (shipped in the wheel), examples, proofs as data, what rules did on older
releases, and the page as it is shown.

May use: `rules` and what is below it. Linting reads no page.

Begin at: `pages.py`, `proof.py`, `rendering.py`.
"""
