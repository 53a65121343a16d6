"""What accelerate's real FSDP plugin makes of exported variables. Usage: plugin_worker.py ENVIRONMENTS RESULTS

ENVIRONMENTS is a JSON list of mappings; RESULTS gets a list of {"error"} or of the plugin's attributes.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock


def main() -> None:
    import torch
    from accelerate.utils import FullyShardedDataParallelPlugin, dataclasses

    seen: list[dict[str, Any]] = []
    for variables in json.loads(Path(sys.argv[1]).read_text()):
        for name in [name for name in os.environ if name.startswith("FSDP_")]:
            del os.environ[name]
        os.environ.update(variables)
        # The plugin asks for the current card when it synchronises module states; this machine may have none.
        with (
            mock.patch.object(dataclasses, "is_cuda_available", lambda: True),
            mock.patch.object(torch.cuda, "current_device", lambda: torch.device("cpu")),
        ):
            try:
                seen.append(attributes(FullyShardedDataParallelPlugin()))
            except Exception as error:
                seen.append({"error": f"{type(error).__name__}: {error}"})
    Path(sys.argv[2]).write_text(json.dumps(seen))


def attributes(plugin: Any) -> dict[str, Any]:
    """By the names of `fsdp_config`; enumerations by the names of their members."""
    policy = getattr(plugin.auto_wrap_policy, "__name__", None)
    names = {
        "transformer_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "size_based_auto_wrap_policy": "SIZE_BASED_WRAP",
        None: "NO_WRAP",
    }
    offload = plugin.cpu_offload
    found = {name: getattr(plugin, name) for name in (
        "fsdp_version", "reshard_after_forward", "cpu_ram_efficient_loading", "activation_checkpointing",
        "activation_checkpointing_offload", "ignored_modules", "forward_prefetch", "use_orig_params",
        "sync_module_states", "min_num_params",
    )}  # fmt: skip
    for name in ("sharding_strategy", "backward_prefetch", "state_dict_type"):
        value = getattr(plugin, name)
        found[name] = getattr(value, "name", value)
    classes = plugin.transformer_cls_names_to_wrap
    return found | {
        "auto_wrap_policy": names[policy],
        "offload_params": bool(getattr(offload, "offload_params", "CPU" in type(offload).__name__)),
        "transformer_layer_cls_to_wrap": None if classes is None else ",".join(classes),
    }


if __name__ == "__main__":
    main()
