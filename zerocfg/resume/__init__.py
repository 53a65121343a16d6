"""Whether a run can resume from a checkpoint.

Contents: The layout of a checkpoint, read as data (`read`, `deepspeed_files`, `fsdp_files`), the judgement (`verdict`,
`faults`, `into_deepspeed`, `into_fsdp`, `into_plain`, `trainer_files`), and the commands that convert one
(`remediations`). Nothing of a checkpoint is executed.

May use: `compare` and what is below it. No training library.

Begin at: `checkpoint.py`, `verdict.py`, then `faults.py`.
"""
