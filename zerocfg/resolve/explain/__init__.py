"""A resolved run explained: its memory and time, and the alternative plans."""
