"""The operators that DeepSpeed compiles for a config, and what it lacks for that."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.smoke.judge.known_errors import circumstance_of
from zerocfg.smoke.prepare.operators import missing_tools, operators_of

if TYPE_CHECKING:
    from pathlib import Path

ADAM = {"optimizer": {"type": "AdamW"}}


def offloaded(device: str, **more: Any) -> dict[str, Any]:
    return {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": device}}, **more}


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({}, []),
        (ADAM, ["fused_adam"]),
        ({"optimizer": {"type": "Adam", "params": {"torch_adam": True}}}, []),
        ({"optimizer": {"type": "Lion"}}, ["fused_lion"]),
        ({"optimizer": {"type": "OneBitAdam"}}, []),
        (offloaded("none"), []),
        (offloaded("cpu"), ["cpu_adam"]),
        (offloaded("cpu", zero_force_ds_cpu_optimizer=False), []),
        (offloaded("cpu", **ADAM), ["cpu_adam"]),
        (offloaded("nvme", **ADAM), ["cpu_adam", "async_io"]),
        ({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}}, ["async_io"]),
        ({"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}, []),
        ({"zero_optimization": {"stage": 2, "offload_optimizer": None}}, []),
    ],
)
def test_the_operators_of_a_config(config: dict[str, Any], names: list[str]) -> None:
    assert operators_of(config) == names


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Has these tools alone, and a DeepSpeed with these operators built in."""

    def install(*tools: str, built: str = "") -> None:
        (tmp_path / "git_version_info_installed.py").write_text(
            f"installed_ops={{'cpu_adam': {built == 'cpu_adam'}}}\n"
        )
        found = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
        present = {"deepspeed": found} | dict.fromkeys(tools, found)
        monkeypatch.setattr(importlib.util, "find_spec", present.get)
        monkeypatch.setattr(shutil, "which", lambda name, path: "/bin/ninja" if name in tools else None)

    return install


def test_what_is_missing_is_named(machine: Any) -> None:
    machine("setuptools", "ninja")
    assert missing_tools(offloaded("cpu")) is None
    machine("ninja")
    said = "DeepSpeed compiles cpu_adam for this config, and setuptools is not installed: pip install setuptools"
    assert missing_tools(offloaded("cpu")) == said
    assert missing_tools({}) is None, "nothing is compiled"
    machine()
    said = "compiles cpu_adam and async_io for this config, and setuptools and ninja are not installed: pip install "
    assert said in (missing_tools(offloaded("nvme")) or "")


def test_what_was_built_with_deepspeed_needs_no_tools(machine: Any) -> None:
    machine(built="cpu_adam")
    assert missing_tools(offloaded("cpu")) is None
    assert "async_io" in (missing_tools(offloaded("nvme")) or "")


LOAD = """
import importlib.abc, os, sys
class Without(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Without())
import deepspeed
from deepspeed.ops.op_builder import CPUAdamBuilder
try:
    CPUAdamBuilder().load()
except Exception as error:
    print("found", type(error).__name__, error)
"""


@pytest.mark.libs
@pytest.mark.parametrize("missing", ["setuptools", "ninja"])
def test_the_errors_of_deepspeed_are_explained(missing: str, tmp_path: Path) -> None:
    """What it says where a tool is missing is known, and what to install is named."""
    environment = os.environ | {"DS_ACCELERATOR": "cpu", "TORCH_EXTENSIONS_DIR": str(tmp_path)}
    if missing == "ninja":
        environment["PATH"] = "/nowhere"
    words = [sys.executable, "-c", LOAD, missing]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)
    line = next((line for line in done.stdout.splitlines() if line.startswith("found ")), "")
    assert line, done.stderr[-1000:]
    found = circumstance_of(line)
    assert found is not None and found.name == "no-compiler" and missing in found.fix


@pytest.mark.parametrize(
    "error",
    [
        "ModuleNotFoundError: No module named 'setuptools'",
        "RuntimeError: Unable to JIT load the cpu_adam op due to ninja not being installed.",
        "RuntimeError: Unable to JIT load the cpu_adam op due to it not being compatible due to hardware/software",
        "CUDAMismatchException: >- DeepSpeed Op Builder: Installed CUDA version 12.4 does not match the version torch "
        "was compiled with 13.0, unable to compile cuda/cpp extensions without a matching cuda version.",
        "MissingCUDAException: CUDA_HOME does not exist, unable to compile CUDA op(s)",
    ],
)
def test_no_compiler(error: str) -> None:
    found = circumstance_of(error)
    assert found is not None and found.name == "no-compiler"


def test_other_modules_are_no_compiler() -> None:
    assert circumstance_of("ModuleNotFoundError: No module named 'setuptools_scm'") is None
