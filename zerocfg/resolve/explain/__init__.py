"""A resolved run explained: its memory and time, the plans beside it, in words and figures."""
