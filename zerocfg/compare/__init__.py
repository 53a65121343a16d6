"""What differs in effective meaning, and why: two builds, a build and its files, or two configs.

Contents: Differences of locks (`lock_diff`), of a build from what is on disk (`check_outputs`), of effective settings
(`effective_diff`).

May use: `emit` and what is below it.

Begin at: `lock_diff.py`, `check_outputs.py`, `effective_diff.py`.
"""
