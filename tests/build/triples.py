"""Random jobs as repositories have them: an accelerate YAML, a DeepSpeed JSON with autos, a recipe; and what makes the
autos numbers: a model, a world, a training set. Seeded: the same jobs every time.

Each job agrees with itself first; one in four then gets a mistake of a kind that people make.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml

SEED = int(os.environ.get("ZEROCFG_PARITY_SEED", "20260"))
JSON = "ds.json"

Tree = dict[str, Any]


@dataclass
class Triple:
    """One job. ``script`` holds what only the code of an accelerate loop says: its batch size, learning rate, steps.

    ``accelerate`` and ``deepspeed`` are None where the job has no such file. ``hardware`` False: the spec does not say
    which, so that the accelerate config tells the number of processes.
    """

    number: int
    consumer: str
    accelerate: Tree | None
    deepspeed: Tree | None
    recipe: Tree
    model: Tree
    machines: int
    per_machine: int
    samples: int
    script: Tree = field(default_factory=dict)
    mistake: str = ""
    hardware: bool = True

    @property
    def world(self) -> int:
        return self.machines * self.per_machine

    @property
    def open_stage(self) -> bool:
        """Whether no source sets the ZeRO stage."""
        if self.deepspeed is not None:
            zero = self.deepspeed.get("zero_optimization", {})
            return "stage" not in zero or zero["stage"] == "auto"
        return self.accelerate is not None and "zero_stage" not in self.accelerate["deepspeed_config"]

    def files(self) -> Tree:
        """The files of the job and its spec, by name: texts for YAML, data for JSON."""
        run: Tree = {
            "consumer": self.consumer,
            "script": "train.py",
            "model": "config.json",
            "train_samples": self.samples,
        }
        if self.hardware:
            run["hardware"] = f"{self.machines}x{self.per_machine}xH100-80GB"
        found: Tree = {"train.py": "", "config.json": self.model}
        if self.accelerate is not None:
            run["accelerate"] = "acc.yaml"
            found["acc.yaml"] = yaml.safe_dump(self.accelerate, sort_keys=False)
        if self.deepspeed is not None:
            found[JSON] = self.deepspeed
            if self.accelerate is None:
                run["deepspeed"] = JSON
        if self.consumer != "accelerate":
            run["recipe"] = "recipe.yaml"
            found["recipe.yaml"] = yaml.safe_dump(self.recipe, sort_keys=False)
        return {"zerocfg.yaml": {"version": 1, "runs": {"a": run}}, **found}

    def case(self, stage: int | None = None) -> Tree:
        """The job as tests/build/play.py plays it, on as many ranks as its hardware has.

        ``stage``: the ZeRO stage that zerocfg chose, for a job that says none.
        """
        deepspeed = self.deepspeed
        if deepspeed is not None and stage is not None:
            deepspeed = {**deepspeed, "zero_optimization": {**deepspeed.get("zero_optimization", {}), "stage": stage}}
        launch = dict(self.accelerate or {"distributed_type": "DEEPSPEED", "deepspeed_config": {}})
        if self.accelerate is None:
            launch["deepspeed_config"] = {"deepspeed_config_file": JSON}
        launch |= {"num_processes": self.world, "num_machines": self.machines, "main_process_port": 29871}
        if self.machines > 1:
            launch |= {"main_process_ip": "10.0.0.1", "machine_rank": 0}
            launch["deepspeed_config"] = {**launch["deepspeed_config"], "deepspeed_multinode_launcher": "standard"}
        if deepspeed is None and stage is not None:
            launch["deepspeed_config"] = {**launch["deepspeed_config"], "zero_stage": stage}
        return {
            "yaml": json.dumps(launch),
            "json": None if deepspeed is None else json.dumps(deepspeed),
            "flags": ["--config_file", "acc.yaml"],
            "consumer": "accelerate" if self.consumer == "accelerate" else "transformers",
            "reader": "trl" if self.consumer == "trl" else None,
            "route": None if self.deepspeed is None else "accelerate",
            "arguments": self.recipe,
            "model": self.model,
            "samples": self.samples,
            "script": self.script,
        }

    def __str__(self) -> str:
        files = {name: content for name, content in self.files().items() if name not in ("zerocfg.yaml", "train.py")}
        what = f"{self.number}: {self.consumer} on {self.machines}x{self.per_machine}, {self.samples} samples"
        script = f", script {json.dumps(self.script)}" if self.script else ""
        return f"{what}{script}{', ' + self.mistake if self.mistake else ''}\n    {json.dumps(files)}"


def triples(count: int, seed: int = SEED) -> list[Triple]:
    """``count`` jobs. The job of a number does not depend on how many there are."""
    return [_triple(number, random.Random(f"{seed} {number}")) for number in range(count)]


def _triple(number: int, chance: random.Random) -> Triple:
    consumer = chance.choices(("transformers", "trl", "accelerate"), (6, 2, 2))[0]
    machines, each = chance.choice((1, 1, 1, 2, 4)), chance.choice((1, 2, 4, 8))
    if machines * each == 1:
        each = 2
    recipe = _recipe(chance, consumer)
    script = _script(chance)
    samples = chance.choice((7, 64, 1000, 1023, 52002))
    job = Triple(number, consumer, None, None, recipe, _model(chance), machines, each, samples, script)
    has_json = consumer == "accelerate" or chance.random() < 0.8
    if has_json:
        job.deepspeed = _deepspeed(chance, job)
    if not has_json or chance.random() < 0.6:
        job.accelerate = _accelerate(chance, job)
    if job.open_stage:
        job.model = _model(chance, known=True)  # zerocfg chooses by memory
    elif job.accelerate is not None and machines == 1 and chance.random() < 0.25:
        job.hardware = False
        job.accelerate["num_processes"] = job.world
    if consumer != "accelerate":
        job.script = {}
    if chance.random() < 0.25:
        kinds = [kind for kind in MISTAKES if kind.applies(job)]
        kind = chance.choice(kinds)
        job.mistake = kind.name
        kind.make(chance, job)
    return job


def _some(chance: random.Random, into: Tree, share: float, **choices: Any) -> None:
    for name, values in choices.items():
        if chance.random() < share:
            into[name] = chance.choice(values)


# --- the parts of a job that agrees with itself -----------------------------------------------------------------------


TEXTS = ("1e-5", "5e-6", "2")
"""Numbers as YAML reads many people's: the parser of TRL makes numbers of them."""


def _recipe(chance: random.Random, consumer: str) -> Tree:
    found: Tree = {"output_dir": "out", "save_strategy": "no"}
    _some(
        chance,
        found,
        0.6,
        per_device_train_batch_size=[1, 2, 3, 4, 16],
        gradient_accumulation_steps=[1, 2, 3, 8],
        learning_rate=[5.0e-5, 1.0e-4, 2e-5, 3e-6, 1, *TEXTS[: 3 * (consumer == "trl")]],
        weight_decay=[0.0, 0.1, 0.01],
        max_grad_norm=[1.0, 0.5, 0.3, 0.0, 5],
        warmup_steps=[0, 3, 10, 250, 0.03, 0.1, 0.5, 1, 1.5],
    )
    _some(
        chance,
        found,
        0.3,
        adam_beta1=[0.9, 0.8],
        adam_beta2=[0.999, 0.95, 0.98],
        adam_epsilon=[1e-8, 1.0e-6],
        optim=["adamw_torch", "adafactor", "sgd"],
        lr_scheduler_type=["linear", "cosine", "constant"],
        seed=[1],
    )
    if chance.random() < 0.5:
        found["max_steps"] = chance.choice((5, 100, 1000))
        _some(chance, found, 0.2, num_train_epochs=[1, 3])
    else:
        _some(chance, found, 0.7, num_train_epochs=[1, 3.0, 2.5, 0.5, 1.01], max_steps=[-1])
    _some(chance, found, 0.15, dataloader_drop_last=[True, False], save_on_each_node=[True, False])
    precision = chance.choices(("bf16", "fp16", "no", ""), (6, 3, 1, 2))[0]
    if precision in ("bf16", "fp16"):
        found[precision] = True
    elif precision == "no" or consumer == "trl":
        found["bf16"] = False
    _some(chance, found, 0.03, bf16_full_eval=[True], fp16_full_eval=[True], auto_find_batch_size=[True])
    return found


def _script(chance: random.Random) -> Tree:
    return {
        "batch_size": chance.choice((1, 2, 3, 8)),
        "lr": chance.choice((0.25, 1e-4)),
        "weight_decay": chance.choice((0.0, 0.1)),
        "total": chance.choice((8, 100, 1001)),
        "warmup": chance.choice((0, 7)),
    }


def _model(chance: random.Random, known: bool = False) -> Tree:
    """A config.json; ``known``: of a type whose memory zerocfg predicts."""
    width = chance.choice((16, 30, 64, 768, 1024, 2048))
    layers = chance.choice((1, 2, 4))
    usual = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": 1, "num_key_value_heads": 1}
    kinds: list[Tree] = [
        {"model_type": "llama", **usual, "intermediate_size": 4 * width, "vocab_size": 320},
        {"model_type": "llama", **usual},
        {"model_type": "mistral", **usual, "vocab_size": 320},
        {"model_type": "qwen2", **usual},
        {"model_type": "qwen3", **usual, "head_dim": 16},
        {"model_type": "gpt2", "n_embd": width, "n_layer": layers, "n_head": 2},
        {"model_type": "gpt2"},
        {"model_type": "llama", "num_hidden_layers": layers},
        {"model_type": "mixtral", **usual, "num_local_experts": 4},
        {"model_type": "opt", **usual},
        {"model_type": "bloom", "hidden_size": width, "n_layer": layers},
        {"model_type": "bloom", "n_embed": width, "n_layer": layers},
        {"model_type": "t5", "d_model": width, "num_layers": layers},
        {"model_type": "bart", "d_model": width, "encoder_layers": layers, "decoder_layers": layers},
        {"model_type": "whisper", "d_model": width},
        {"model_type": "bert", **usual},
        {"model_type": "falcon", **usual},
        {"model_type": "gpt_neox", **usual},
        {"model_type": "resnet", "hidden_sizes": [width, 2 * width]},
        {"model_type": "segformer", "hidden_sizes": [width, 2 * width, 8]},
        {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", **usual}},
        {"model_type": "llava", "text_config": {"model_type": "llama", **usual}},
        {"model_type": "qwen2_5_vl", "text_config": {"model_type": "qwen2_5_vl_text", **usual}},
        {"model_type": "qwen2_vl", **usual},
        {"model_type": "mistral3", "text_config": {"model_type": "mistral", **usual}},
        {"model_type": "of_this_repository", **usual},
    ]
    return chance.choice(kinds[:9] if known else kinds)


def _learning_rate(chance: random.Random, job: Triple) -> Any:
    """What the config says: nearly always "auto", and always where it is the default of a trainer of TRL's."""
    if job.consumer == "trl" and (job.recipe.get("learning_rate") in (None, *TEXTS)):
        return "auto"
    return "auto" if chance.random() < 0.9 else job.recipe.get("learning_rate", 5e-5)


def _precision(recipe: Tree, consumer: str) -> str:
    if consumer == "accelerate":
        return "no"
    if recipe.get("fp16"):
        return "fp16"
    return "bf16" if recipe.get("bf16", consumer == "trl") else "no"


def _accelerate(chance: random.Random, job: Triple) -> Tree:
    found: Tree = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "DEEPSPEED"}
    _some(chance, found, 0.6, num_processes=[job.world, job.world, 2], num_machines=[job.machines])
    _some(chance, found, 0.2, same_network=[True], machine_rank=[0], main_training_function=["main"], use_cpu=[False])
    section: Tree = {}
    _some(chance, section, 0.5, zero3_init_flag=[True, False], deepspeed_multinode_launcher=["standard"])
    if job.deepspeed is not None:
        found["deepspeed_config"] = {"deepspeed_config_file": JSON, **section}
        return found
    recipe = job.recipe
    _some(
        chance,
        section,
        0.7,
        zero_stage=[0, 1, 2, 3, 3, "3"],
        gradient_accumulation_steps=["auto", recipe.get("gradient_accumulation_steps", 1)],
        gradient_clipping=["auto", recipe.get("max_grad_norm", 1.0)],
        zero3_save_16bit_model=[True, False],
    )
    _some(chance, section, 0.3, offload_optimizer_device=["none", "cpu"], offload_param_device=["none", "cpu"])
    if section.get("gradient_clipping") == 0:
        del section["gradient_clipping"]
    _some(chance, found, 0.5, mixed_precision=[_precision(recipe, job.consumer)])
    found["deepspeed_config"] = section
    return found


def _deepspeed(chance: random.Random, job: Triple) -> Tree:
    """A config that agrees with the recipe; three of four values that may be "auto" are."""
    recipe = job.recipe
    loop = job.consumer == "accelerate"
    micro, steps = recipe.get("per_device_train_batch_size", 8), recipe.get("gradient_accumulation_steps", 1)

    def auto(value: Any, share: float = 0.75) -> Any:
        return "auto" if chance.random() < share else value

    found: Tree = {"zero_optimization": _zero(chance, auto)}
    found["train_micro_batch_size_per_gpu"] = auto(micro, 0.2 if loop else 0.75)
    if loop:
        if chance.random() < 0.8:
            found["gradient_accumulation_steps"] = auto(steps, 0.2)
        _some(chance, found, 0.6, train_batch_size=["auto"])
    else:
        # Left out, accelerate writes a 1, which has to be the recipe's.
        if steps != 1 or chance.random() < 0.8:
            found["gradient_accumulation_steps"] = auto(steps)
        _some(chance, found, 0.7, train_batch_size=[auto(micro * steps * job.world)])
    _some(chance, found, 0.8, gradient_clipping=[auto(recipe.get("max_grad_norm", 1.0))])
    word = _precision(recipe, job.consumer)
    for section in ("bf16", "fp16"):
        if chance.random() < 0.7:
            full = bool(recipe.get(f"{section}_full_eval")) and not loop
            found[section] = {"enabled": auto(word == section or full)}
    if "fp16" in found:
        _some(chance, found["fp16"], 0.3, loss_scale=[0], initial_scale_power=[16], loss_scale_window=[1000])
    if chance.random() < 0.55:
        found["optimizer"] = _optimizer(chance, job, auto)
        if chance.random() < 0.8:
            found["scheduler"] = _scheduler(chance, job, auto)
    _some(
        chance,
        found,
        0.15,
        steps_per_print=[10, 2000],
        wall_clock_breakdown=[False],
        zero_allow_untested_optimizer=[True],
        gradient_predivide_factor=[1.0],
        prescale_gradients=[False],
        communication_data_type=["fp32"],
        checkpoint=[{"tag_validation": "Warn"}],
        activation_checkpointing=[{"partition_activations": False}],
        flops_profiler=[{"enabled": False}],
    )
    return found


def _zero(chance: random.Random, auto: Callable[..., Any]) -> Tree:
    zero: Tree = {"stage": chance.choices((0, 1, 2, 3, "auto"), (1, 2, 4, 8, 1))[0]}
    _some(
        chance,
        zero,
        0.5,
        overlap_comm=[True, False],
        contiguous_gradients=[True],
        reduce_bucket_size=[auto(500_000_000)],
        reduce_scatter=[True],
        allgather_bucket_size=[200_000_000, 5e8],
        round_robin_gradients=[True],
        stage3_gather_16bit_weights_on_model_save=["auto", True, False],
        sub_group_size=[1e9, 1e8],
        stage3_max_live_parameters=[1e9],
    )
    of_stage_3 = 0.7 if zero["stage"] == 3 else 0.25
    _some(
        chance,
        zero,
        of_stage_3,
        stage3_prefetch_bucket_size=[auto(15_000_000)],
        stage3_param_persistence_threshold=[auto(1e5)],
        reduce_bucket_size=[auto(500_000_000)],
    )
    if zero["stage"] in (2, 3):
        _some(
            chance,
            zero,
            0.2,
            offload_optimizer=[
                {"device": "cpu"},
                {"device": "auto"},
                {"device": "cpu", "pin_memory": True},
                {"device": "none", "nvme_path": "auto"},
                {"device": "auto", "nvme_path": "auto", "pin_memory": True},
            ],
        )
    if zero["stage"] == 3:
        _some(chance, zero, 0.2, offload_param=[{"device": "cpu"}, {"device": "auto"}, {"device": "none"}])
    return zero


def _optimizer(chance: random.Random, job: Triple, auto: Callable[..., Any]) -> Tree:
    params: Tree = {}
    recipe = job.recipe
    betas = [recipe.get("adam_beta1", 0.9), recipe.get("adam_beta2", 0.999)]
    _some(
        chance,
        params,
        0.85,
        lr=[_learning_rate(chance, job)],
        betas=[auto(betas)],
        eps=[auto(recipe.get("adam_epsilon", 1e-8))],
        weight_decay=[auto(recipe.get("weight_decay", 0.0))],
    )
    _some(chance, params, 0.1, torch_adam=[True], adam_w_mode=[True])
    return {"type": chance.choice(("AdamW", "AdamW", "Adam")), "params": params}


def _scheduler(chance: random.Random, job: Triple, auto: Callable[..., Any]) -> Tree:
    kind = chance.choice(("WarmupLR", "WarmupDecayLR", "WarmupDecayLR", "WarmupCosineLR"))
    params: Tree = {}
    if kind != "WarmupLR":
        params["total_num_steps"] = "auto"
    _some(chance, params, 0.9, warmup_num_steps=["auto"])
    if kind != "WarmupCosineLR":
        _some(
            chance,
            params,
            0.85,
            warmup_min_lr=[auto(0)],
            warmup_max_lr=[_learning_rate(chance, job)],
        )
    _some(chance, params, 0.1, warmup_type=["linear"])
    return {"type": kind, "params": params}


# --- mistakes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mistake:
    name: str
    applies: Callable[[Triple], bool]
    make: Callable[[random.Random, Triple], None]


def _has_json(job: Triple) -> bool:
    return job.deepspeed is not None


def _trainer_json(job: Triple) -> bool:
    return _has_json(job) and job.consumer != "accelerate"


def _both(job: Triple) -> bool:
    return _has_json(job) and job.accelerate is not None


def _only_yaml(job: Triple) -> bool:
    return job.deepspeed is None and job.accelerate is not None


def _put(section: str, *values: Tree) -> Callable[[random.Random, Triple], None]:
    """Write one of the entries into a section of the DeepSpeed config ("" is its top)."""

    def make(chance: random.Random, job: Triple) -> None:
        assert job.deepspeed is not None
        if job.consumer == "trl":
            job.recipe.setdefault("learning_rate", 1e-4)  # otherwise only the trainer's class knows whether it differs
        here = job.deepspeed
        for part in section.split(".") if section else ():
            here = here.setdefault(part, {})
        here.update(chance.choice(values))

    return make


def _launch(*values: Tree) -> Callable[[random.Random, Triple], None]:
    """Write one of the entries into `deepspeed_config` of the accelerate config."""

    def make(chance: random.Random, job: Triple) -> None:
        assert job.accelerate is not None
        job.accelerate["deepspeed_config"].update(chance.choice(values))

    return make


def _no_zero(chance: random.Random, job: Triple) -> None:
    assert job.deepspeed is not None
    del job.deepspeed["zero_optimization"]


def _no_batch(chance: random.Random, job: Triple) -> None:
    assert job.deepspeed is not None
    for name in ("train_batch_size", "train_micro_batch_size_per_gpu"):
        job.deepspeed.pop(name, None)


def _no_accumulation(chance: random.Random, job: Triple) -> None:
    assert job.deepspeed is not None
    job.deepspeed.pop("gradient_accumulation_steps", None)
    job.recipe["gradient_accumulation_steps"] = 2


def _precision_beside_file(chance: random.Random, job: Triple) -> None:
    assert job.accelerate is not None
    job.accelerate["mixed_precision"] = chance.choice(("no", "bf16"))


def _both_precisions(chance: random.Random, job: Triple) -> None:
    job.recipe |= {"bf16": True, "fp16": True}


MISTAKES = (
    Mistake("another micro batch", _trainer_json, _put("", {"train_micro_batch_size_per_gpu": 5})),
    Mistake("another batch", _trainer_json, _put("", {"train_batch_size": 7})),
    Mistake("another accumulation", _trainer_json, _put("", {"gradient_accumulation_steps": 5})),
    Mistake("another clipping", _trainer_json, _put("", {"gradient_clipping": 0.125})),
    Mistake("another optimizer", _trainer_json, _put("optimizer.params", {"lr": 0.5}, {"weight_decay": 0.7})),
    Mistake("other betas", _trainer_json, _put("optimizer.params", {"betas": [0.5, 0.6]}, {"eps": 1e-3})),
    Mistake("another warmup", _trainer_json, _put("scheduler.params", {"warmup_num_steps": 0}, {"warmup_max_lr": 9.0})),
    Mistake("another total", _trainer_json, _put("scheduler.params", {"total_num_steps": 17})),
    Mistake("another precision", _has_json, _put("", {"bf16": {"enabled": True}}, {"fp16": {"enabled": True}})),
    Mistake("precision off", _trainer_json, _put("", {"bf16": {"enabled": False}}, {"fp16": {"enabled": False}})),
    Mistake("both precisions", _has_json, _put("", {"bf16": {"enabled": True}, "fp16": {"enabled": True}})),
    Mistake(
        "an auto that nobody fills",
        _has_json,
        _put(
            "zero_optimization",
            {"overlap_comm": "auto"},
            {"allgather_bucket_size": "auto"},
            {"sub_group_size": "auto"},
            {"contiguous_gradients": "auto"},
            {"stage3_max_live_parameters": "auto"},
            {"offload_optimizer": {"device": "cpu", "pin_memory": "auto"}},
        ),
    ),
    Mistake(
        "another auto that nobody fills",
        _has_json,
        _put("", {"wall_clock_breakdown": "auto"}, {"steps_per_print": "auto"}, {"train_steps": "auto"}),
    ),
    Mistake("an auto of the loss scale", _has_json, _put("fp16", {"auto_cast": "auto"}, {"loss_scale": "auto"})),
    Mistake("an auto type", _has_json, _put("optimizer", {"type": "auto"})),
    Mistake("an auto of the schedule", _has_json, _put("scheduler.params", {"warmup_type": "auto"})),
    Mistake("no zero_optimization", _has_json, _no_zero),
    Mistake("no batch", _has_json, _no_batch),
    Mistake("no accumulation", _trainer_json, _no_accumulation),
    Mistake("a stage that is none", _has_json, _put("zero_optimization", {"stage": 4}, {"stage": -1})),
    Mistake("an unknown key", _has_json, _put("zero_optimization", {"stage3_gather_fp16": True}, {"overlap": True})),
    Mistake("a removed key", _has_json, _put("", {"amp": {"enabled": False}}, {"elasticity": {"enabled": False}})),
    Mistake("a text", _has_json, _put("zero_optimization", {"reduce_bucket_size": "5e8"})),
    Mistake("a device that is none", _has_json, _put("zero_optimization", {"offload_optimizer": {"device": "gpu"}})),
    Mistake(
        "a field beside the file",
        _both,
        _launch(
            {"gradient_accumulation_steps": 1},
            {"gradient_clipping": 1.0},
            {"zero_stage": 3},
            {"offload_optimizer_device": "cpu"},
            {"zero3_save_16bit_model": True},
        ),
    ),
    Mistake("mixed_precision beside the file", _both, _precision_beside_file),
    Mistake(
        "a field unlike the recipe",
        _only_yaml,
        _launch({"gradient_accumulation_steps": 5}, {"gradient_clipping": 0.125}),
    ),
    Mistake(
        "a bad field", _only_yaml, _launch({"zero_stage": "auto"}, {"zero_stage": 7}, {"zero3_init_flag": "maybe"})
    ),
    Mistake("two precisions in the recipe", lambda job: job.consumer != "accelerate", _both_precisions),
)
