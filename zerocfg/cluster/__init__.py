"""Starting one program on every node of a job: Slurm, Ray or this machine, and what each of them says while it runs."""
