"""Can a run resume from a checkpoint? Reads the layout of the checkpoint, executes nothing of it."""
