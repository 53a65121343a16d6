"""The training loops of the ranks' program, one for each kind of consumer."""
