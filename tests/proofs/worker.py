"""One rank of an example: arguments, parse, init, step, save, load, on the real libraries.

What is forced on the example, and nothing else, so that it trains on the processors of any machine:
* ``use_cpu=True`` in TrainingArguments (``PartialState(cpu=True)`` for an own accelerate loop). Without it,
  and without a card, each rank silently trains alone. DeepSpeed is told of the process group then, which
  accelerate does on a card: else zero.Init checks an explicit train_batch_size against a world of one.
* ``report_to="none"``; an absolute ``output_dir`` becomes ``out`` in the example's folder.
* training ends after two optimizer steps (a callback; ``max_steps`` stays as written).
* DeepSpeed believes that the accelerator computes in fp16, which it asks of a processor only.
* the model is a Llama of 2 layers and hidden size 64; of a ``model/config.json`` the hidden size, the heads
  and the type are kept, layers (to 2), vocabulary and the inner size (to 2048) are cut.

The phase "load" is played only when it is asked for: a checkpoint is written, and a second engine, Trainer or
Accelerator, whose model starts from zeros, continues from it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import engines
import sharding
import trl_trainers

if TYPE_CHECKING:
    from progress import Progress

STEPS = 2
SEQUENCE = 16
LEARNING_RATE = 1e-3


@dataclass
class ScriptArguments:
    """What a usual script reads beside TrainingArguments. ``device_map`` is handed to from_pretrained, the others
    are accepted and not used."""

    model_name_or_path: str | None = field(default=None)
    tokenizer_name: str | None = field(default=None)
    torch_dtype: str | None = field(default=None)
    attn_implementation: str | None = field(default=None)
    device_map: str | None = field(default=None)
    dataset_name: str | None = field(default=None)
    dataset_config_name: str | None = field(default=None)
    train_file: str | None = field(default=None)
    max_seq_length: int | None = field(default=None)


def play(progress: Progress, consumer: str, files: list[str], script: list[str], tiny: str) -> None:
    """Play the example as ``consumer`` does. ``script``: words after the training script; ``tiny``: a saved
    model."""
    engines.instrument(progress)
    {"transformers": trainer, "trl": trainer, "accelerate": accelerate_loop, "deepspeed": deepspeed_loop}[consumer](
        progress, consumer, files, script, tiny
    )


# --- Trainer ----------------------------------------------------------------------------------------------


def trainer(progress: Progress, consumer: str, files: list[str], script: list[str], tiny: str) -> None:
    import transformers
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    progress.begin("arguments")
    args = (trl_arguments if consumer == "trl" else transformers_arguments)(files, script)
    args.report_to = [name for name in args.report_to if name not in INTEGRATION_TO_CALLBACK]
    if Path(args.output_dir or "").is_absolute():
        args.output_dir = "out"
    join_deepspeed(args.deepspeed)
    sharding.prepare(args.fsdp)
    progress.see("args", {item.name: getattr(args, item.name, None) for item in fields(args)})
    if consumer == "trl":
        progress.see("args.use_peft", args.model_config.use_peft)
    model = make_model(files, tiny, getattr(args, "device_map", None))
    progress.see("model.partitioned", any(hasattr(parameter, "ds_id") for parameter in model.parameters()))

    def look(_: Any, __: Any, named: dict[str, Any]) -> None:
        if "input_ids" in named and "engine.rows" not in progress.values:
            progress.see("engine.rows", len(named["input_ids"]))

    model.register_forward_pre_hook(look, with_kwargs=True)
    batch = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size

    class Watch(transformers.TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **seen: Any) -> None:
            if not progress.values.get("engine.kind"):  # no deepspeed.initialize came by
                progress.end("parse")
                engines.see_plain(progress, run.model_wrapped, run)
                progress.end("init")
                progress.begin("step")
            engines.see_optimizer(progress, run.optimizer, run.lr_scheduler)

        def on_step_end(self, args: Any, state: Any, control: Any, **seen: Any) -> None:
            control.should_training_stop = control.should_training_stop or state.global_step >= STEPS
            if sharding.unsavable(run.accelerator):
                control.should_save = False

    kind = trl_trainers.trainer_class(files) if consumer == "trl" else None
    if kind is not None:
        texts = trl_trainers.data(files)
        tokens = trl_trainers.tokenizer()
        run = kind(model=model, args=args, train_dataset=texts, processing_class=tokens, callbacks=[Watch()])
    else:
        held_out = Tokens(model, 2) if args.eval_strategy != "no" else None
        run = transformers.Trainer(
            model=model,
            args=args,
            train_dataset=Tokens(model, 4 * batch),
            eval_dataset=held_out,
            callbacks=[Watch()],
        )
    progress.see("args.mixed_precision", run.accelerator.mixed_precision)
    progress.see("args.deepspeed_plugin", run.accelerator.state.deepspeed_plugin)
    sharding.see_plugin(progress, run.accelerator)
    progress.end("arguments")
    progress.begin("init")
    result = run.train()
    progress.see("engine.loss", result.training_loss)
    progress.see("engine.global_step", run.state.global_step)
    progress.see("engine.learning_rate", run.lr_scheduler.get_last_lr()[0])
    progress.see("model.checkpointing", run.accelerator.unwrap_model(run.model).is_gradient_checkpointing)
    engines.see_step(progress, run.model_wrapped)
    progress.end("step")
    progress.begin("save")
    sharding.refuse_saving(run.accelerator)
    run.save_model("saved")
    engines.see_weights(progress, Path("saved"), run.accelerator.unwrap_model(run.model))
    progress.end("save")
    progress.begin("load")
    continue_trainer(progress, run, files, tiny)


def continue_trainer(progress: Progress, first: Any, files: list[str], tiny: str) -> None:
    """The Trainer writes its own checkpoint (``save_strategy`` or not), and a new Trainer resumes from it."""
    import transformers

    first._save_checkpoint(first.model, trial=None)
    first.accelerator.wait_for_everyone()
    folder = Path(first.args.output_dir) / f"checkpoint-{first.state.global_step}"
    engines.see_checkpoint(progress, folder)
    before = engines.whole_parameters(first.accelerator.unwrap_model(first.model))

    class Watch(transformers.TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **seen: Any) -> None:
            model = second.accelerator.unwrap_model(second.model)
            engines.see_loaded(progress, model, before, state.global_step)
            progress.end("load")

    forget_accelerator()
    model = engines.blank(make_model(files, tiny))
    data = Tokens(model, 4 * first.args.train_batch_size * first.args.gradient_accumulation_steps)
    second = transformers.Trainer(model=model, args=first.args, train_dataset=data, callbacks=[Watch()])
    second.train(resume_from_checkpoint=str(folder))


def forget_accelerator() -> None:
    """Let a second Accelerator of this process be as the first of a new one; the process group stays."""
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state()
    GradientState._reset_state()


def join_deepspeed(asked: Any) -> None:
    """Tell DeepSpeed of the process group, which accelerate itself does where there is a card."""
    if asked or os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true":
        from deepspeed import comm

        if not comm.is_initialized() and "RANK" in os.environ:
            comm.init_distributed(auto_mpi_discovery=False)


def without(words: list[str], option: str) -> tuple[list[str], str | None]:
    """``words`` without ``option`` and its value, and that value."""
    if option not in words[:-1]:
        return words, None
    at = words.index(option)
    return words[:at] + words[at + 2 :], words[at + 1]


def transformers_arguments(files: list[str], script: list[str]) -> Any:
    """The recipe as ``parse_yaml_file`` reads it (no conversion), overridden by the script's own options."""
    import argparse

    import transformers
    import yaml

    words, recipe = without(script, "--config")
    if words and words[0].endswith((".yaml", ".yml", ".json")):
        recipe, *words = words
    if recipe is None and "recipe.yaml" in files:
        recipe = "recipe.yaml"
    kinds = (ScriptArguments, transformers.TrainingArguments)
    if recipe is None:
        parser = transformers.HfArgumentParser(kinds)
        own, args = parser.parse_args_into_dataclasses([*words, "--use_cpu", "True"])
        args.device_map = own.device_map
        return args
    options = transformers.HfArgumentParser(kinds)
    for action in options._actions:
        action.default, action.required = argparse.SUPPRESS, False
    given = vars(options.parse_args(words))
    written = yaml.safe_load(Path(recipe).read_text(encoding="utf-8"))
    if isinstance(written, dict):
        written = {**written, **given, "use_cpu": True}
    own, args = transformers.HfArgumentParser(kinds).parse_dict(written)
    args.device_map = own.device_map
    return args


def trl_arguments(files: list[str], script: list[str]) -> Any:
    """TrlParser with ScriptArguments, SFTConfig (that of the script which ``train.sh`` names) and ModelConfig,
    as TRL's sft.py has it."""
    import trl

    if "recipe.yaml" in files and not any(word.startswith("--config") for word in script):
        script = ["--config", "recipe.yaml", *script]
    parser = trl.TrlParser((trl.ScriptArguments, trl_trainers.config_class(files), trl.ModelConfig))
    known = {action.dest for action in parser._actions}
    needed = [] if "dataset_name" not in known else ["--dataset_name", "none"]
    _, args, model = parser.parse_args_and_config([*needed, *script, "--use_cpu", "True"])
    args.model_config = model
    return args


# --- own loops --------------------------------------------------------------------------------------------


def accelerate_loop(progress: Progress, consumer: str, files: list[str], script: list[str], tiny: str) -> None:
    """The loop of accelerate's guide. A ``recipe.yaml`` holds the script's own arguments: batch size,
    accumulation."""
    from accelerate import Accelerator, PartialState

    progress.begin("arguments")
    recipe = own_recipe(files)
    PartialState(cpu=True)
    join_deepspeed(False)
    sharding.prepare(False)
    named = {key: recipe[key] for key in ("gradient_accumulation_steps", "mixed_precision") if key in recipe}
    accelerator = Accelerator(**named)
    plugin = accelerator.state.deepspeed_plugin
    progress.see("args.gradient_accumulation_steps", accelerator.gradient_accumulation_steps)
    progress.see("args.mixed_precision", accelerator.mixed_precision)
    progress.see("args.distributed_type", accelerator.distributed_type)
    progress.see("args.deepspeed_plugin", plugin)
    sharding.see_plugin(progress, accelerator)
    progress.end("arguments")
    progress.begin("init")
    model = make_model(files, tiny)
    prepared = prepare(accelerator, model, recipe)
    engine, optimizer, loader = prepared[:3]
    if not progress.values.get("engine.kind"):
        progress.end("parse")
        engines.see_plain(progress, engine, None)
        progress.see("engine.dtype", engines.DTYPES[accelerator.mixed_precision])
        progress.see("engine.gradient_accumulation_steps", accelerator.gradient_accumulation_steps)
        progress.end("init")
        progress.begin("step")
    scheduler = prepared[3] if len(prepared) > 3 else None
    engines.see_optimizer(progress, optimizer, scheduler)
    micro_steps = STEPS * accelerator.gradient_accumulation_steps
    for _, batch in zip(range(micro_steps), loader, strict=False):
        with accelerator.accumulate(engine):
            loss = engine(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
            optimizer.zero_grad()
    progress.see("engine.loss", loss.item())
    engines.see_step(progress, engine)
    engines.see_checks(progress, accelerator)
    progress.end("step")
    progress.begin("save")
    sharding.refuse_saving(accelerator)
    bare = accelerator.unwrap_model(engine)
    state = accelerator.get_state_dict(engine)
    bare.save_pretrained("saved", is_main_process=accelerator.is_main_process, state_dict=state)
    accelerator.wait_for_everyone()
    engines.see_weights(progress, Path("saved"), bare)
    progress.end("save")
    progress.begin("load")
    accelerator.save_state("checkpoint")
    engines.see_checkpoint(progress, Path("checkpoint"))
    before = engines.whole_parameters(bare)
    forget_accelerator()
    accelerator = Accelerator(**named)
    engine = prepare(accelerator, engines.blank(make_model(files, tiny)), recipe)[0]
    accelerator.load_state("checkpoint")
    engines.see_loaded(progress, accelerator.unwrap_model(engine), before, getattr(engine, "global_steps", None))
    progress.end("load")


def own_recipe(files: list[str]) -> dict[str, Any]:
    import yaml

    return yaml.safe_load(Path("recipe.yaml").read_text(encoding="utf-8")) if "recipe.yaml" in files else {}


def prepare(accelerator: Any, model: Any, recipe: dict[str, Any]) -> tuple[Any, ...]:
    """Engine, optimizer, loader and, where the config or the script brings one, scheduler."""
    import torch
    from accelerate.utils import DummyOptim, DummyScheduler

    plugin = accelerator.state.deepspeed_plugin
    config = plugin.deepspeed_config if plugin else {}
    dummy = "optimizer" in config
    optimizer = (DummyOptim if dummy else torch.optim.AdamW)(model.parameters(), lr=LEARNING_RATE)
    loader = torch.utils.data.DataLoader(Tokens(model, 64), batch_size=recipe.get("per_device_train_batch_size", 1))
    if "scheduler" in config:
        scheduler: Any = DummyScheduler(optimizer, total_num_steps=100, warmup_num_steps=10)
    else:
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0) if not dummy else None
    return tuple(accelerator.prepare(model, optimizer, loader, *([scheduler] if scheduler else [])))


def deepspeed_loop(progress: Progress, consumer: str, files: list[str], script: list[str], tiny: str) -> None:
    """The loop of DeepSpeed's tutorial."""
    import torch

    progress.begin("arguments")
    _, path = without(script, "--deepspeed_config")
    path = path or "ds.json"
    model = make_model(files, tiny)
    progress.end("arguments")
    progress.begin("parse")
    engine = start_engine(model, path)
    batch = engine.train_micro_batch_size_per_gpu()
    data = Tokens(model, batch)
    tokens = torch.stack([data[i]["input_ids"] for i in range(batch)])
    for _ in range(STEPS * engine.gradient_accumulation_steps()):
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        engine.step()
    progress.see("engine.loss", loss.item())
    progress.see("engine.global_step", engine.global_steps)
    engines.see_step(progress, engine)
    progress.end("step")
    progress.begin("save")
    engine.save_16bit_model("saved", "pytorch_model.bin")
    torch.distributed.barrier()
    engines.see_weights(progress, Path("saved"), engine.module)
    progress.end("save")
    progress.begin("load")
    engine.save_checkpoint("checkpoint")
    torch.distributed.barrier()
    engines.see_checkpoint(progress, Path("checkpoint"))
    before = engines.whole_parameters(engine.module)
    engine = start_engine(engines.blank(make_model(files, tiny)), path)
    engine.load_checkpoint("checkpoint")
    engines.see_loaded(progress, engine.module, before, engine.global_steps)
    progress.end("load")


def start_engine(model: Any, path: str) -> Any:
    """The script brings AdamW, or its CPU twin under offload, where the JSON has no optimizer."""
    import deepspeed
    import torch

    written = _own_reading(path)
    zero = written.get("zero_optimization")
    offload = zero.get("offload_optimizer") if isinstance(zero, dict) else None
    on_host = isinstance(offload, dict) and offload.get("device") in ("cpu", "nvme")
    optimizer = None
    if not written.get("optimizer"):
        kind = deepspeed.ops.adam.DeepSpeedCPUAdam if on_host else torch.optim.AdamW
        optimizer = kind(model.parameters(), lr=LEARNING_RATE)
    return deepspeed.initialize(
        model=model, model_parameters=list(model.parameters()), optimizer=optimizer, config=path
    )[0]


def _own_reading(path: str) -> dict[str, Any]:
    """The config as the script itself looks at it; whatever is wrong with it is DeepSpeed's to say."""
    import hjson

    try:
        content = hjson.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


# --- model and data ---------------------------------------------------------------------------------------


def make_model(files: list[str], tiny: str, device_map: str | None = None) -> Any:
    import transformers

    if "model/config.json" not in files:
        return transformers.AutoModelForCausalLM.from_pretrained(tiny, device_map=device_map)
    content = json.loads(Path("model/config.json").read_text(encoding="utf-8"))
    for part in (content, content.get("text_config")):
        if isinstance(part, dict):
            small = {"num_hidden_layers": 2, "vocab_size": 2048, "intermediate_size": 2048}
            part.update({key: min(value, part[key]) for key, value in small.items() if key in part})
    config = transformers.AutoConfig.for_model(**content)
    return transformers.AutoModelForCausalLM.from_config(config)


class Tokens:
    """``size`` samples of SEQUENCE tokens, the same on every rank."""

    def __init__(self, model: Any, size: int) -> None:
        config = model.config.get_text_config()
        self.vocabulary = config.vocab_size
        self.size = max(1, int(size))

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, at: int) -> dict[str, Any]:
        import torch

        tokens = (torch.arange(SEQUENCE) * 7 + at) % self.vocabulary
        return {"input_ids": tokens, "labels": tokens.clone()}
