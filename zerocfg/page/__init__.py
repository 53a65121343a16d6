"""One HTML page about a run: what it gets, what is wrong with it, what it will take, what was seen, what changed."""
