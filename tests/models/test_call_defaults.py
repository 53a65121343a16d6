"""What today's transformers puts in the place of an argument that a call leaves out, against what zerocfg knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from zerocfg.catalog.history import call_defaults

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.libs
def test_the_dtype_of_a_loaded_model(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    made = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=32, **small))
    seen = []
    for saved in (torch.bfloat16, torch.float32):
        made.to(saved).save_pretrained(tmp_path / str(saved))
        seen.append(transformers.AutoModelForCausalLM.from_pretrained(tmp_path / str(saved)).dtype)
    default = {(torch.bfloat16, torch.float32): "auto", (torch.float32, torch.float32): "float32"}[tuple(seen)]
    known = call_defaults("transformers")
    assert known.today("from_pretrained.dtype") == {"default": default}
    assert known.names[-1] == transformers.__version__
