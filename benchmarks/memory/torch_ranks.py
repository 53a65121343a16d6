"""Measures what DDP and FSDP really hold: ranks of processors over gloo, every storage followed from birth to death.

torch shards tensors of processors as it shards those of cards, so the bytes are the same; only what streams keep alive
for longer on a card cannot be seen here.

Run as a program: reads cases, one JSON object a line, from standard input: the fields of ``TorchOptions``, and
``model`` ("llama" or "tied"), ``trained`` (only parameters with this in their name), ``accelerate`` (prepared by
accelerate rather than as accelerate does it) and ``adapters`` (the rank of PEFT's, on every linear layer, prepared as
the Trainer does it; needs peft). Prints a JSON object a line: for each moment the bytes of rank 0 at its peak and at
its end, and which functions made them, and for adapters ``units`` and what the last step ``sent``; or
``{"error": ...}``.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
import tempfile
import traceback
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_HIDDEN = ("/torch/utils/", "/torch/_", "/torch/autograd/", "/torch/nn/modules/module.py", "/contextlib.py", __file__)


class Tracker(TorchDispatchMode):
    """Follows every storage that an operator returns: bytes now, the peak, and where the bytes of both were made.

    Operators that only C++ runs are seen too. Storages that are resized in place (FSDP frees and fills its flat
    parameters so) are followed through ``UntypedStorage.resize_``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, tuple[int, str]] = {}
        self.now = self.peak = self.begin = 0
        self.at_peak: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()  # elements of whole buffers, by collective
        self._rising = False
        self._resize = torch.UntypedStorage.resize_

    def __enter__(self) -> Tracker:
        tracker = self

        def resize(storage: torch.UntypedStorage, size: int) -> Any:
            result = tracker._resize(storage, size)
            if storage._cdata in tracker.live:
                tracker._add(storage._cdata, storage.nbytes() - tracker.live[storage._cdata][0])
            return result

        torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign, assignment]
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(*error)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(kind.__name__ == "DTensor" for kind in types):
            return NotImplemented  # its own dispatch first, the tensors inside it come here after that
        result = function(*args, **(kwargs or {}))
        if function.namespace == "c10d":
            sides = (
                sum(one.numel() for one in tree_leaves(side) if isinstance(one, torch.Tensor)) for side in args[:2]
            )
            self.sent[function.__name__.split(".")[0]] += max(sides)
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.follow(leaf)
        return result

    def start(self) -> None:
        """The peak from here on."""
        self.begin = self.peak = self.now
        self._rising = True

    def follow_all(self) -> None:
        """Also what was there before."""
        for thing in gc.get_objects():
            if issubclass(type(thing), torch.Tensor):  # isinstance would wake deprecated objects
                self.follow(thing, "before")

    def follow(self, tensor: torch.Tensor, site: str = "") -> None:
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.device.type != "cpu":
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self.live:
            self.live[key] = (0, site or _site())
            weakref.finalize(storage, self._gone, key)
            self._add(key, storage.nbytes())

    def sites(self) -> Counter[str]:
        """Bytes alive by the place that made them."""
        found: Counter[str] = Counter()
        for size, site in self.live.values():
            found[site] += size
        return found

    def settle(self) -> None:
        """Note the sites of the peak, when this is it. Done before anything is freed."""
        if self._rising and self.now == self.peak:
            self.at_peak = self.sites()
        self._rising = False

    def _add(self, key: int, size: int) -> None:
        if size < 0:
            self.settle()
        held, site = self.live[key]
        self.live[key] = (held + size, site if held or size < 0 else _site() if site != "before" else site)
        self.now += size
        if self.now > self.peak:
            self.peak = self.now
            self._rising = True

    def _gone(self, key: int) -> None:
        self.settle()
        self.now -= self.live.pop(key)[0]


def _site() -> str:
    """The innermost two functions that are not torch's own machinery."""
    frame = sys._getframe(1)
    names: list[str] = []
    while frame is not None and len(names) < 2:  # type: ignore[redundant-expr]
        code = frame.f_code
        if not any(part in code.co_filename for part in _HIDDEN):
            names.append(f"{code.co_filename.rsplit('/', 1)[-1]}: {code.co_name}")
        frame = frame.f_back  # type: ignore[assignment]
    return " < ".join(names)


# --- ranks


def build_model(name: str) -> Any:
    """``llama``: untied; ``tied``: embedding and head share their weight. Blocks are much larger than activations."""
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=128,
        intermediate_size=352,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=768,
        max_position_embeddings=16,
        tie_word_embeddings=name == "tied",
        use_cache=False,
    )
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config)


def wrap(model: Any, case: dict[str, Any]) -> Any:
    """What accelerate 1.15 makes of a model, in its words for torch (accelerator.py: prepare_model; fsdp_utils.py:
    fsdp2_prepare_model)."""
    import functools

    from torch.distributed import fsdp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
    from torch.nn.parallel import DistributedDataParallel

    ranks, shards = case["world_size"], case.get("shard_ranks")
    low = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(case["precision"]) if case["master"] else None
    block = type(model.model.layers[0])
    if case["kind"] == "ddp":
        return DistributedDataParallel(
            model,
            bucket_cap_mb=case.get("ddp_bucket_mib", 25),
            gradient_as_bucket_view=case.get("gradient_as_bucket_view", False),
        )
    if case["kind"] == "fsdp1":
        strategy = fsdp.ShardingStrategy
        reshard = case.get("reshard_after_forward", True)
        mesh = None
        if shards:
            mesh = init_device_mesh("cpu", (ranks // shards, shards), mesh_dim_names=("replicate", "shard"))
        chosen = (
            (strategy.HYBRID_SHARD if reshard else strategy._HYBRID_SHARD_ZERO2)
            if shards
            else (strategy.FULL_SHARD if reshard else strategy.SHARD_GRAD_OP)
        )
        prefetch = {"pre": fsdp.BackwardPrefetch.BACKWARD_PRE, "post": fsdp.BackwardPrefetch.BACKWARD_POST}
        return fsdp.FullyShardedDataParallel(
            model,
            device_mesh=mesh,
            device_id=torch.device("cpu"),
            sharding_strategy=chosen,
            mixed_precision=fsdp.MixedPrecision(low, low, low) if low else None,
            auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={block}),
            backward_prefetch=prefetch.get(case.get("backward_prefetch", "pre")),
            forward_prefetch=case.get("forward_prefetch", False),
            use_orig_params=True,
        )
    if case["kind"] == "fsdp2":
        if shards:
            mesh = init_device_mesh("cpu", (ranks // shards, shards), mesh_dim_names=("replicate", "shard"))
        else:
            mesh = init_device_mesh("cpu", (ranks,))
        reshard = case.get("reshard_after_forward", True)
        policy = fsdp.MixedPrecisionPolicy(low, low, low) if low else fsdp.MixedPrecisionPolicy()
        settings = {"mesh": mesh, "mp_policy": policy}
        if case.get("cpu_offload"):
            settings["offload_policy"] = fsdp.CPUOffloadPolicy(pin_memory=False)
        for layer in model.model.layers:
            fsdp.fully_shard(layer, reshard_after_forward=reshard, **settings)
        tail = [model.model.norm, model.lm_head]
        if model.config.tie_word_embeddings:
            tail = [model.model.norm, model.model.embed_tokens, model.lm_head]
        else:
            fsdp.fully_shard(model.model.embed_tokens, reshard_after_forward=reshard, **settings)
        fsdp.fully_shard(tail, reshard_after_forward=False, **settings)
        return fsdp.fully_shard(model, **settings)
    return model


def prepare(model: Any, optimizer: Any, case: dict[str, Any]) -> Any:
    """The same by accelerate itself, which makes plain DDP of FSDP on processors unless it is told of a card.

    ``optimizer`` None: the model alone, with adapters, as the Trainer prepares it (trainer.py: _prepare_for_training).
    """
    from unittest import mock

    import accelerate
    from accelerate import PartialState
    from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
    from torch.distributed.fsdp import _init_utils

    PartialState(cpu=True)
    PartialState._shared_state.update(
        distributed_type=DistributedType.MULTI_GPU, backend="gloo", device=torch.device("cpu")
    )
    _init_utils._check_module_states_for_sync_module_states = lambda *_: None  # type: ignore[assignment]
    settings: dict[str, Any] = {"auto_wrap_policy": "transformer_based_wrap", "cpu_ram_efficient_loading": False}
    reshard = case.get("reshard_after_forward", True)
    if case["kind"] == "fsdp1":
        settings |= {
            "fsdp_version": 1,
            "use_orig_params": True,
            "sharding_strategy": "FULL_SHARD" if reshard else "SHARD_GRAD_OP",
            "backward_prefetch": {"pre": "BACKWARD_PRE", "post": "BACKWARD_POST", "none": "NO_PREFETCH"}[
                case.get("backward_prefetch", "pre")
            ],
            "forward_prefetch": case.get("forward_prefetch", False),
        }
    else:
        settings |= {"fsdp_version": 2, "reshard_after_forward": reshard}
    with mock.patch.object(torch.cuda, "current_device", lambda: torch.device("cpu")):
        accelerator = accelerate.Accelerator(
            mixed_precision=case["precision"] if case["master"] else "no",
            fsdp_plugin=FullyShardedDataParallelPlugin(**settings),
        )
        if optimizer is None:
            from transformers.distributed.fsdp import update_fsdp_plugin_peft

            update_fsdp_plugin_peft(model, accelerator)
            return accelerator.prepare(model)
        return accelerator.prepare(model, optimizer)


def adapt(model: Any, rank: int) -> Any:
    """PEFT's adapters on every linear layer but the head; it makes them fp32."""
    import peft

    return peft.get_peft_model(model, peft.LoraConfig(r=rank, target_modules="all-linear", task_type="CAUSAL_LM"))


def units_of(model: Any, kind: str) -> list[dict[str, Any]]:
    """What is sharded and gathered as one, by module: elements in all, those of this rank, dtype, whether trained."""
    if kind == "fsdp1":
        flat = {
            name: part._flat_param
            for name, part in model.named_modules()
            if getattr(part, "_flat_param", None) is not None
        }
        return [
            {
                "name": name.replace("_fsdp_wrapped_module.", ""),
                "elements": one._unpadded_unsharded_size.numel(),
                "own": one._sharded_size.numel(),
                "dtype": str(one.dtype),
                "trained": one.requires_grad,
            }
            for name, one in flat.items()
        ]
    found = []
    for name, part in model.named_modules():
        state = getattr(part, "_get_fsdp_state", None)
        groups = state()._fsdp_param_groups if state else []
        for group in groups:
            found.append(
                {
                    "name": name,
                    "elements": sum(one._orig_size.numel() for one in group.fsdp_params),
                    "own": sum(one._sharded_param_data.numel() for one in group.fsdp_params),
                }
            )
    return found


def no_sync(model: Any, case: dict[str, Any], quiet: bool) -> Any:
    """Gradients are not reduced within, as accelerate does it in all but the last micro batch."""
    import contextlib

    if case["kind"] == "fsdp2":
        model.set_requires_gradient_sync(not quiet)
    if quiet and case["kind"] in ("ddp", "fsdp1"):
        return model.no_sync()
    return contextlib.nullcontext()


def train(case: dict[str, Any]) -> dict[str, Any]:
    """Four optimizer steps; what is held at rest and at most in the moments of the last two."""
    found: dict[str, Any] = {}
    with Tracker() as tracker:
        gc.collect()
        tracker.follow_all()
        base = tracker.now

        def report(moment: str) -> None:
            # The smallest of two steps: threads of gloo let go of a finished collective's tensors late at times.
            tracker.settle()
            if moment not in found or tracker.peak - base < found[moment]["peak"]:
                found[moment] = {
                    "peak": tracker.peak - base,
                    "at_peak": dict(tracker.at_peak.most_common()),
                    "rest": tracker.now - base,
                    "sites": dict(tracker.sites().most_common()),
                }
            tracker.start()

        tracker.start()
        dtype = torch.float32 if case["master"] else {"bf16": torch.bfloat16, "fp32": torch.float32}[case["precision"]]
        raw = build_model(case.get("model", "llama")).to(dtype)
        embedding = raw.model.embed_tokens
        for name, parameter in raw.named_parameters():
            parameter.requires_grad_(case.get("trained", "") in name)
        del parameter  # would keep the head whole
        adapters = case.get("adapters", 0)
        by_accelerate = case.get("accelerate", False) or bool(adapters)
        model = raw.to(torch.bfloat16) if by_accelerate else wrap(raw, case)
        if adapters:
            model = adapt(model, adapters)
        del raw
        form = {
            "adamw_fused": {"fused": True},
            "adamw_foreach": {"foreach": True},
            "adamw_for_loop": {"foreach": False},
        }
        delayed = bool(adapters) and case["kind"] == "fsdp1"  # as the Trainer does it
        if delayed:
            model = prepare(model, None, case)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained, **form[case.get("optimizer", "adamw_foreach")])
        del trained
        if by_accelerate and not delayed:
            model, optimizer = prepare(model, optimizer, case)
        gc.collect()
        report("init")
        tokens = torch.zeros((1, 2), dtype=torch.long)
        steps, micro = 4, case.get("gradient_accumulation_steps", 1)
        for step in range(steps):
            tracker.sent.clear()
            for index in range(micro):
                last = step >= 2
                with no_sync(model, case, index < micro - 1):
                    gc.collect()
                    # From the embedding on: FSDP 1 frees the gradients of the last step only as forward begins.
                    begin = embedding.register_forward_pre_hook(lambda *_: tracker.start())
                    loss = model(input_ids=tokens, labels=tokens).loss
                    begin.remove()
                    gc.collect()
                    if last:
                        report(f"forward {index}")
                    loss.backward()
                    del loss
                    if last:
                        report(f"backward {index}")
            sent = dict(tracker.sent)
            clip = model.clip_grad_norm_ if case["kind"] == "fsdp1" else None
            if clip:
                clip(1.0)
            else:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if last:
                report("clip")
            optimizer.step()
            if last:
                report("step")
            model.zero_grad()
        gc.collect()
        report("rest")
        if adapters:
            found["units"], found["sent"] = units_of(model, case["kind"]), sent
    return found


def rank_main(rank: int, case: dict[str, Any], port: int, answer: str) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(case["world_size"])}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    try:
        if case["kind"] != "single":
            torch.distributed.init_process_group("gloo")
        result = train(case)
    except Exception:
        result = {"error": traceback.format_exc()}
    if rank == 0:
        Path(answer).write_text(json.dumps(result))
    os._exit(0)


def run_case(case: dict[str, Any]) -> dict[str, Any]:
    """What rank 0 holds; shards are padded to the same size on every rank."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.NamedTemporaryFile("r") as answer:
        children = []
        for rank in range(case["world_size"]):
            child = os.fork()
            if child == 0:
                rank_main(rank, case, port, answer.name)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        text = answer.read()
    result: dict[str, Any] = json.loads(text) if text else {"error": "rank 0 died"}
    return result


if __name__ == "__main__":
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import transformers

    _ = (transformers.LlamaConfig, transformers.LlamaForCausalLM, transformers.AutoModelForCausalLM)
    from torch.distributed import fsdp
    from torch.distributed.tensor import DTensor

    _ = (fsdp, DTensor)
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # what the libraries left behind: the ranks collect often, and only what is theirs
    for line in sys.stdin:
        output.write(json.dumps(run_case(json.loads(line))) + "\n")
        output.flush()
