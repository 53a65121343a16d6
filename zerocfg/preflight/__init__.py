"""Which node, rank or link is slow, broken or unlike the others, before a job starts.

Contents: Two halves, joined by typed lines (`messages`): the ranks' program (`rank`, with `facts`, `meeting`,
`measuring`, `tournament`), which alone uses torch, and the judge (`judge`, with `reports`, `differences`, `slow`,
`expectations`), which also reads what ranks said that died or hang. `start` plays nodes on this machine.

May use: `cluster`, `emit` and what is below them.

Begin at: `messages.py`, `judge.py`, then `slow.py`.
"""
