"""The operators that DeepSpeed compiles or loads for a config, and the programs that it needs for that.

DeepSpeed asks torch.utils.cpp_extension for an operator that was not built with it, also for one that lies compiled
in the cache. That module imports setuptools and calls ninja (deepspeed/ops/op_builder/builder.py, jit_load).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.run.stages.arguments import mapping_of

if TYPE_CHECKING:
    from collections.abc import Mapping

# By type of the optimizer's section: the operator on the device, and on the host.
OPTIMIZERS = {
    "adam": ("fused_adam", "cpu_adam"),
    "adamw": ("fused_adam", "cpu_adam"),
    "adagrad": ("", "cpu_adagrad"),
    "lion": ("fused_lion", "cpu_lion"),
    "lamb": ("fused_lamb", "fused_lamb"),
}


def operators_of(config: Mapping[str, object]) -> list[str]:
    """Names of the operators that a DeepSpeed config needs, as DeepSpeed calls them."""
    zero = mapping_of(config.get("zero_optimization")) or {}
    offload = mapping_of(zero.get("offload_optimizer")) or {}
    places = {str(place.get("device") or "none") for place in (offload, mapping_of(zero.get("offload_param")) or {})}
    on_host = str(offload.get("device") or "none") in ("cpu", "nvme")
    section = mapping_of(config.get("optimizer")) or {}
    found = []
    if section.get("type"):
        name = OPTIMIZERS.get(str(section["type"]).lower(), ("", ""))[on_host]
        if name and not (mapping_of(section.get("params")) or {}).get("torch_adam"):
            found.append(name)
    elif on_host and config.get("zero_force_ds_cpu_optimizer", True) is not False:
        found.append("cpu_adam")  # accelerate replaces the Trainer's AdamW by it
    if "nvme" in places:
        found.append("async_io")
    return found


def missing_tools(config: Mapping[str, object]) -> str | None:
    """What is not installed though DeepSpeed needs it to compile or load an operator of a config; None: nothing."""
    needed = [name for name in operators_of(config) if not _is_built_in(name)]
    if not needed:
        return None
    missing = [] if importlib.util.find_spec("setuptools") is not None else ["setuptools"]
    places = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    missing += [] if shutil.which("ninja", path=os.pathsep.join(places)) is not None else ["ninja"]
    if not missing:
        return None
    return (
        f"DeepSpeed compiles {' and '.join(needed)} for this config, and {' and '.join(missing)} "
        f"{'is' if len(missing) == 1 else 'are'} not installed: pip install {' '.join(missing)}"
    )


def _is_built_in(operator: str) -> bool:
    """Whether DeepSpeed was installed with the operator (DS_BUILD_OPS)."""
    found = importlib.util.find_spec("deepspeed")
    for place in (found.submodule_search_locations or ()) if found is not None else ():
        try:
            text = (Path(place) / "git_version_info_installed.py").read_text()
        except OSError:
            continue
        return re.search(rf"'{operator}': True", text) is not None
    return False
