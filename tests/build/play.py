"""Play builds on the real libraries: the sources and what was emitted from them, up to the parsed DeepSpeed config.

Run as a script: ``play.py CASES RESULTS``. The cases and the answers are those of tests/parity/worker.py; a case
holds "hidden_size" of its model and "samples" of its training set besides, and its "arguments" are a recipe.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.parity import worker


def train(case: dict[str, Any], seen: dict[str, Any], libraries: dict[str, Any]) -> None:
    transformers, model = libraries["transformers"], libraries["model"]
    model.config.hidden_size = case["hidden_size"]
    known = {field.name for field in dataclasses.fields(transformers.TrainingArguments)}
    named = {name: value for name, value in case["arguments"].items() if name in known}
    named |= {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "save_strategy": "no"}
    if case["route"] == "trainer":
        named["deepspeed"] = "ds.json"
    arguments = transformers.TrainingArguments(**named)
    row = {"input_ids": [1, 2, 3], "labels": [1, 2, 3]}
    trainer = transformers.Trainer(model, arguments, train_dataset=[row] * case["samples"])
    seen["phase"] = "init"
    trainer.train()
    seen["phase"] = "no engine"


if __name__ == "__main__":
    worker.train = train
    worker.main()
