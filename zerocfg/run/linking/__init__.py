"""The runs of launch lines, scripts, specs and recipes: which files each of them names."""
