"""The command line: thin click commands.

Contents: `commands`, a module each, imported on use; `start_lint`, the short way to a lint; `linting`, what lint
prints and writes; `fleet`, the lint of many repositories; `smoke`, what the subcommands of `zerocfg smoke` share;
`screens`, text about plans, builds and smoke-runs; what is raised becomes a message and an exit code (`usage`,
`exit_code`).

May use: everything; nothing but this package imports click, and nothing imports this package.

Begin at: `main.py`, `commands/lint.py`, `linting/lint.py`.
"""
