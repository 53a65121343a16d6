"""Traces LLaMA-7B as transformers 4.40.2 computed its loss, for the rows that were measured with such a release.

    pip install --target OLD transformers==4.40.2
    PYTHONPATH=OLD python benchmarks/memory/old_release.py

Until 4.45 the model class made fp32 logits and a shifted copy of them; today's does not. Reentrant checkpointing was
the default then. Writes data/llama-7b-transformers-4.40.json.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TRACER = HERE.parents[1] / "zerocfg" / "tracer"
DATA = HERE / "data" / "llama-7b-transformers-4.40.json"
LENGTH = 4096


def tracer() -> Any:
    """zerocfg's recorder without the rest of zerocfg."""
    spec = importlib.util.spec_from_file_location(
        "zerocfg_tracer", TRACER / "__init__.py", submodule_search_locations=[str(TRACER)]
    )
    assert spec is not None and spec.loader is not None
    module = sys.modules["zerocfg_tracer"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return importlib.import_module("zerocfg_tracer.record")


def row(record: Any, batch: int, checkpointing: bool) -> dict[str, Any]:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.modeling_utils import no_init_weights

    with FakeTensorMode(allow_non_fake_inputs=True):
        with no_init_weights():
            model = LlamaForCausalLM._from_config(
                LlamaConfig(max_position_embeddings=LENGTH), torch_dtype=torch.bfloat16, attn_implementation="sdpa"
            )
        model.train()
        # Reentrant exactly where there is checkpointing.
        found = record.record(model, record.Batch(batch, LENGTH, checkpointing, checkpointing))
    segments, produced = [], 0
    for moment, _, size, elements in found.stretches:
        segments.append([moment, size, produced])
        produced += elements
    return {"micro_batch": batch, "gradient_checkpointing": checkpointing, "elements": produced, "segments": segments}


def main() -> None:
    record = tracer()
    import torch
    import transformers

    if not transformers.__version__.startswith("4.40."):
        sys.exit(f"this is transformers {transformers.__version__}, not 4.40")
    rows = [row(record, batch, checkpointing) for batch in (1, 2, 4, 8) for checkpointing in (False, True)]
    head = {"transformers": transformers.__version__, "torch": torch.__version__, "sequence_length": LENGTH}
    DATA.write_text(json.dumps({**head, "segment": ["moment", "bytes", "elements before"], "rows": rows}) + "\n")


if __name__ == "__main__":
    main()
