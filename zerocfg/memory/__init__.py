"""What a rank holds in each moment of a step, what it sends, and how long the step takes.

Contents: Pure functions of model facts, options, workload and hardware: allocations replayed in their order (`zero`,
`fsdp`, `sharding`), activations in closed form or traced (`activations`), the time of a step (`time`), the spread of a
prediction and its verdict.

May use: `models` and what is below it. Its syntax is hashed: committed results of benchmarks name the formulas that
made them.

Begin at: `terms.py`, `options.py`, `predict.py`, then `zero/replay.py`, `time/step_time.py`.
"""
