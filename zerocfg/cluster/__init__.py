"""Starts one program on every node of a job, and hears what each of them says.

Contents: The types and what an engine has to be able to do (`job`), the engines (`slurm`, `ray`, `local`), the part
that runs on the nodes (`on_node`, `events`), and following a job to its end (`wait`, `submission`).

May use: `source`. It knows neither smoke-runs nor lints, whose programs it starts.

Begin at: `job.py`, `slurm.py`, `wait.py`.
"""
