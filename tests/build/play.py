"""Play builds on the real libraries: the sources and what was emitted from them, up to the parsed DeepSpeed config.

Run as a script: ``play.py CASES RESULTS``. The cases and the answers are those of tests/parity/worker.py. Besides, a
case holds "model" (a config.json), "samples" of its training set, "arguments" that are a recipe, "reader" ("trl": the
recipe is read by TrlParser) and, for a loop of its own, "script": what that passes to prepare().
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from tests.parity import worker

QUIET = {"use_cpu": True, "report_to": "none", "disable_tqdm": True}


def configuration(transformers: Any, model: dict[str, Any]) -> Any:
    """The config object that from_pretrained makes of a config.json; a plain one for a type of a repository's own."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    values = {name: value for name, value in model.items() if name != "model_type"}
    kind = model.get("model_type")
    return CONFIG_MAPPING[kind](**values) if kind in CONFIG_MAPPING else transformers.PreTrainedConfig(**values)


def read(case: dict[str, Any], transformers: Any) -> Any:
    """The training arguments as the script's parser makes them of the recipe."""
    recipe = {**case["arguments"]}
    own = {"deepspeed": "ds.json"} if case["route"] == "trainer" else {}
    if case.get("reader") == "trl":
        from trl import SFTConfig, TrlParser

        Path("recipe.yaml").write_text(json.dumps(recipe))
        known = TrlParser((SFTConfig,)).parse_args_and_config(["--config", "recipe.yaml", "--use_cpu", "True"])[0]
        assert not own, "not needed so far"
        known.report_to, known.disable_tqdm = [], True
        return known
    fields = {field.name for field in dataclasses.fields(transformers.TrainingArguments)}
    named = {name: value for name, value in recipe.items() if name in fields}
    return transformers.TrainingArguments(**named | {"save_strategy": "no"} | QUIET | own)


def train(case: dict[str, Any], seen: dict[str, Any], libraries: dict[str, Any]) -> None:
    transformers, model = libraries["transformers"], libraries["model"]
    arguments = read(case, transformers)
    config = configuration(transformers, case["model"])
    model.config = config
    row = {"input_ids": [1, 2, 3], "labels": [1, 2, 3]}
    trainer = transformers.Trainer(model, arguments, train_dataset=[row] * case["samples"])
    seen["phase"] = "init"
    trainer.train()
    seen["phase"] = "no engine"


def raw(case: dict[str, Any], seen: dict[str, Any], libraries: dict[str, Any]) -> None:
    """A loop of its own: an optimizer of torch's, or accelerate's stand-ins where the config brings the real one."""
    torch, model, accelerate = libraries["torch"], libraries["model"], libraries["accelerate"]
    said = case["script"]
    model.config = configuration(libraries["transformers"], case["model"])
    accelerate.PartialState(cpu=True)  # otherwise a machine without a GPU is a world of one
    accelerator = accelerate.Accelerator()
    seen["phase"] = "init"
    loader = torch.utils.data.DataLoader(list(range(case["samples"])), batch_size=said["batch_size"])
    plugin = accelerator.state.deepspeed_plugin
    config = plugin.deepspeed_config if plugin else {}
    if "optimizer" in config:
        optimizer = accelerate.utils.DummyOptim(model.parameters(), lr=said["lr"], weight_decay=said["weight_decay"])
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=said["lr"])
    parts = [model, optimizer, loader]
    if "scheduler" in config:
        schedule = accelerate.utils.DummyScheduler(
            optimizer, total_num_steps=said["total"], warmup_num_steps=said["warmup"]
        )
        parts.append(schedule)
    accelerator.prepare(*parts)
    seen["phase"] = "no engine"


if __name__ == "__main__":
    if any(case.get("reader") == "trl" for case in json.loads(Path(sys.argv[1]).read_text())):
        import trl  # once, before the forks

        _ = (trl.SFTConfig, trl.TrlParser)
    worker.train = train
    worker.raw = raw
    worker.main()
