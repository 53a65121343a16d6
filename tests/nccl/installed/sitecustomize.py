"""First on the path of the processes that a test on several ranks starts: gives them what the test asks for.

Without the variables nothing is changed. It hands on to the `sitecustomize` that it hides.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec, spec_from_file_location

HERE = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 - this runs in every Python process


def load(name: str, folder: str) -> None:
    """Import a package that lies on no path."""
    spec = spec_from_file_location(name, f"{folder}/__init__.py", submodule_search_locations=[folder])
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.install()


def hand_on() -> None:
    """Run the next one on the path; one that lies before this one has handed on to it."""
    places = [os.path.realpath(place or os.curdir) for place in sys.path]
    spec = PathFinder.find_spec("sitecustomize", places[places.index(HERE) + 1 :])
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def install() -> None:
    """What the environment asks for."""
    if os.environ.get("ZEROCFG_TEST_NCCL") or os.environ.get("ZEROCFG_TEST_LAUNCHES"):
        load("nccl_double", f"{os.path.dirname(HERE)}/double")  # noqa: PTH120


if __name__ == "sitecustomize":
    install()
    hand_on()
