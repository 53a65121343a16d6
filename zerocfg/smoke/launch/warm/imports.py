"""The imports of launchers and ranks, done once in the zygote, which runs this file."""

import importlib
import importlib.util

ALWAYS = ("torch", "torch._dynamo", "torch.distributed.run", "torch.distributed.checkpoint", "torch.distributed.fsdp")
NAMES = {
    "accelerate": ("accelerate.commands.launch", "Accelerator", "DeepSpeedPlugin"),
    "deepspeed": ("deepspeed.checkpoint", "deepspeed.runtime.zero.stage3", "deepspeed.runtime.zero.stage_1_and_2"),
    "transformers": (
        "transformers.integrations.deepspeed", "Trainer", "TrainingArguments", "HfArgumentParser", "AutoConfig",
        "AutoModelForCausalLM", "LlamaForCausalLM",
    ),
    "trl": ("SFTConfig", "SFTTrainer", "TrlParser", "ModelConfig", "ScriptArguments"),
}  # fmt: skip
"""By package that is imported where it is installed: modules, and names that the package imports when they are used."""

for module in ALWAYS:
    importlib.import_module(module)
for package, names in NAMES.items():
    if importlib.util.find_spec(package) is None:
        continue
    loaded = importlib.import_module(package)
    for name in names:
        try:
            importlib.import_module(name) if name.startswith(f"{package}.") else getattr(loaded, name)
        except (ModuleNotFoundError, AttributeError):  # of another release
            continue
