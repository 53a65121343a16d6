"""What machines have: accelerators, memory, network.

Contents: The catalogue of accelerators, profiles, the network between nodes as stated or assumed, and probes of this
machine or of all nodes of a job. `measuring` is a program of its own, the only part that uses torch.

May use: `models` and what is below it. No rule imports it.

Begin at: `catalogue.py`, `probe.py`, `probe_job.py`.
"""
