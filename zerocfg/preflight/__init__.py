"""Before a job: which node or rank is slow, broken or unlike the others, with its figure.

Two halves, joined by lines of JSON. A program for the ranks (`rank`, the only one here that uses torch) prints what it
finds as it finds it; the judge (`judge`) reads the lines of all ranks, also of those that died or hang.
"""
