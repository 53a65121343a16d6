"""What must be in place before an older DeepSpeed is imported beside the newest torch. Configs have no part in it."""

from __future__ import annotations

import logging
import os
import sys
import types


def prepare() -> None:
    from torch.distributed.elastic.agent.server import api as elastic_agent

    os.environ["DS_ACCELERATOR"] = "cpu"
    logging.disable(logging.CRITICAL)
    for absent in ("intel_extension_for_pytorch", "oneccl_bindings_for_pytorch"):
        sys.modules.setdefault(absent, types.ModuleType(absent))  # wanted before they take a processor
    for gone in ("log", "_get_socket_with_port"):
        if not hasattr(elastic_agent, gone):
            setattr(elastic_agent, gone, None)  # taken away by later releases of torch
