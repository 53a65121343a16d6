"""Launch lines of shell scripts, Makefiles, Markdown pages, notebooks and Python code."""
