"""What decides the memory and the time of a run: engine options, workload, activations."""
