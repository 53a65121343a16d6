"""A record of everything that lint says about many configs, to compare before and after a change."""
