"""``python -m tools.every_command CHECKOUTS``: every command over many checkouts, and a table of what went wrong.

CHECKOUTS is a folder of repositories, or a file with a path a line. Each command runs in a copy of the checkout, which
it may change only where that is its work: a fix changes files that were there, a build and a report write what the
command line says. Wrong are tracebacks and internal errors, exit codes that no command has or that contradict what the
command did, more than ten seconds of CPU, files that changed although they should not, and files whose syntax a command
broke. Rows go to ``--rows`` as they come; a later call goes on there.
"""
