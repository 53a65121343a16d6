"""``python -m zerocfg`` and the ``zerocfg`` command.

``--version`` answers before anything is imported, and a lint whose outcome is kept before what lints is.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and leave with its exit code."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from zerocfg.version import __version__

        sys.stdout.write(f"zerocfg {__version__}\n")
        return
    import gc

    # Importing makes many objects that stay; looking through them again and again costs a tenth of a short run, and
    # once, in the middle of what a lint of two files imports, 2 of its 60 ms.
    gc.set_threshold(200_000, 20, 20)
    if sys.argv[1:2] == ["lint"]:
        from zerocfg.cli.start_lint import run
    else:
        from zerocfg.cli.main import run

    sys.exit(run())


if __name__ == "__main__":
    main()
