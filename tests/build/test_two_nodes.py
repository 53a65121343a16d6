"""The emitted launch script on two nodes: it trains over both and saves every weight."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.build import nodes
from tests.build.conftest import Workplace
from tests.build.nodes import Node

pytestmark = pytest.mark.libs

SECONDS = 400  # most of it, once, for what DeepSpeed compiles
OBSERVED = '''
"""Runs train.py and writes down what DeepSpeed made: "observed-RANK.json"."""
import json
import os
import runpy
import sys

import deepspeed

initialize = deepspeed.initialize


def observe(*arguments, **named):
    found = initialize(*arguments, **named)
    engine = found[0]
    seen = {
        "stage": engine.zero_optimization_stage(),
        "world": deepspeed.comm.get_world_size(),
        "data_parallel": engine.dp_world_size,
        "rank": deepspeed.comm.get_rank(),
        "local_rank": int(os.environ["LOCAL_RANK"]),
        "batch": engine.train_batch_size(),
        "sharded": all(hasattr(parameter, "ds_id") for parameter in engine.module.parameters()),
    }
    with open(f"observed-{seen['rank']}.json", "w") as file:
        json.dump(seen, file)
    return found


deepspeed.initialize = observe
sys.argv[0] = "train.py"
runpy.run_path("train.py", run_name="__main__")
'''
LOOP = '''
"""A loop of its own: three steps, then all weights from rank 0."""
import argparse
import os

import deepspeed
import torch
from deepspeed.runtime.zero import GatheredParameters
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
parser.add_argument("--local_rank", type=int, default=0)
arguments = parser.parse_args()
deepspeed.init_distributed()
config = AutoConfig.from_pretrained("model")
torch.manual_seed(1)
model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
engine, *_ = deepspeed.initialize(args=arguments, model=model, optimizer=optimizer)
tokens = (torch.arange(32) + 5 * int(os.environ["RANK"])).remainder(config.vocab_size).repeat(4, 1)
for _ in range(3):
    loss = engine(input_ids=tokens, labels=tokens).loss
    engine.backward(loss)
    engine.step()
with GatheredParameters(list(engine.module.parameters())):
    if int(os.environ["RANK"]) == 0:
        os.makedirs("runs/quickstart")
        tensors = {name: tensor.detach().contiguous().clone() for name, tensor in engine.module.named_parameters()}
        save_file(tensors, "runs/quickstart/model.safetensors")
deepspeed.comm.destroy_process_group()
'''
CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 1,
    "gradient_clipping": 1.0,
    "bf16": {"enabled": True},
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True},
}


@pytest.fixture
def both() -> Iterator[tuple[Node, Node]]:
    reason = nodes.refused()
    if reason:
        pytest.skip(reason)
    with nodes.two_nodes() as found:
        yield found


@pytest.mark.parametrize("consumer", ["transformers", "deepspeed"])
def test_trains_and_saves(consumer: str, both: tuple[Node, Node], workplace: Workplace, count: Any) -> None:
    job = workplace.example("quickstart")
    (job / "observed.py").write_text(OBSERVED)
    recipe = (job / "recipe.yaml").read_text()
    (job / "recipe.yaml").write_text(recipe.replace("max_steps: 20", "max_steps: 3"))
    run: dict[str, Any] = {"consumer": consumer, "script": "observed.py", "model": "model/config.json"}
    if consumer == "deepspeed":
        (job / "train.py").write_text(LOOP)
        (job / "ds_config.json").write_text(json.dumps(CONFIG))
        run["deepspeed"] = "ds_config.json"
    else:
        run |= {"recipe": "recipe.yaml", "accelerate": "accelerate.yaml"}
    run["hardware"] = "2x1xcpu"
    (job / "zerocfg.yaml").write_text(json.dumps({"version": 1, "runs": {"pair": run}}))
    result = workplace.build(job)
    assert result.exit_code == 0, result.output

    # A port that no other test of this machine uses: it names the shared memory, which namespaces do not divide.
    port = 20_000 + os.getpid() % 10_000
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(workplace.folder),
        "TORCH_EXTENSIONS_DIR": os.environ.get("TORCH_EXTENSIONS_DIR", str(workplace.folder / "extensions")),
        "DS_ACCELERATOR": "cpu",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "MAIN_PROCESS_IP": both[0].address,
        "MAIN_PROCESS_PORT": str(port),
    }
    script = str(workplace.folder / "out" / "pair" / "launch.sh")

    def trained() -> tuple[list[int | None], str]:
        try:
            started = [
                node.start([script], {**environment, "MACHINE_RANK": str(node.rank)}, workplace.folder) for node in both
            ]
            codes = nodes.wait(started, SECONDS)
        finally:
            for left in nodes.shared_memory(port):
                left.unlink(missing_ok=True)
        return codes, "\n".join((workplace.folder / f"node-{node.rank}.log").read_text()[-3000:] for node in both)

    codes, logs = trained()
    if nodes.aborted(logs):
        count("trainings whose last rank was aborted while it left", 1)
    else:
        assert codes == [0, 0], logs
    check(job, json.loads((workplace.folder / "out" / "pair" / "zerocfg.lock").read_text()))
    count("jobs trained over two nodes", 1)


def check(job: Path, lock: dict[str, Any]) -> None:
    """The engine of each rank is the planned one, and the saved weights are those of the whole model."""
    from safetensors import safe_open
    from transformers import AutoConfig, AutoModelForCausalLM

    for rank in (0, 1):
        seen = json.loads((job / f"observed-{rank}.json").read_text())
        assert seen == {
            "stage": lock["plan"]["zero_optimization.stage"],
            "world": lock["plan"]["num_processes"],
            "data_parallel": 2,
            "rank": rank,
            "local_rank": 0,  # the only rank of its node
            "batch": lock["settings"]["train_batch_size"]["value"],
            "sharded": True,
        }
        assert seen["stage"] == 3
    with safe_open(job / "runs" / "quickstart" / "model.safetensors", "pt") as saved:
        shapes = {name: tuple(saved.get_slice(name).get_shape()) for name in saved.keys()}  # noqa: SIM118
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(job / "model"))
    assert shapes == {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
