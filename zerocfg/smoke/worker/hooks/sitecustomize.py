"""Python imports this by itself at the start of every process of a user's command (`zerocfg smoke --command`).

It lies in a folder that PYTHONPATH names first. It hands on to the `sitecustomize` that would have been found without
it, so that an environment that has one keeps it.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec


def hand_on(here: str) -> None:
    """Run the `sitecustomize` that this one hides, if there is one."""
    others = [place for place in sys.path if os.path.realpath(place or os.curdir) != here]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":  # any other name: somebody reads it as a part of zerocfg
    if os.environ.get("ZEROCFG_SMOKE_JOB"):
        from zerocfg_worker.hooks import import_hook  # type: ignore[import-not-found]  # lies beside this file then

        import_hook.install()
    hand_on(os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120 - this runs in every Python process
