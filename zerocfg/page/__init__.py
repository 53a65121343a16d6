"""One HTML page about a run, and one about a fleet.

Contents: Data (`page`, and a module for each section), drawing (`charts`, `*_charts`) and setting (`render`,
`templates/`), apart from each other.

May use: `compare`, `fleet`, and of `smoke` the certificate alone.

Begin at: `report_input.py`, `page.py`, `render.py`.
"""
