"""Diagnostics as text: pure functions.

Contents: A module for each format: for people, JSON, SARIF, GitHub, GitLab, JUnit; the list of runs, and statistics.

May use: `linter` and what is below it. It reads no file and writes none.

Begin at: `formats.py`, `full.py`.
"""
