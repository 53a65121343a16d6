"""The predicted settings, variables and failures are those of the real libraries, launch by launch."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.parity.cases import Case, cases
from zerocfg.run.facts import ModelSummary
from zerocfg.run.model import UNKNOWN, Effective, Failure, Origin, ReaderEvidence, Run, Setting, SourceFile
from zerocfg.run.resolve_settings import resolve_settings
from zerocfg.run.stages import engine
from zerocfg.source.launch.line import LaunchLine
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText, Span

pytestmark = pytest.mark.libs

COUNT = 300

SAYS = {
    "unknown-top-key": "had unknown keys",
    "newer-top-key": "had unknown keys",
    "distributed-type-missing": "A `distributed_type` must be specified|positional arguments?: 'distributed_type'",
    "distributed-type": "is not a valid DistributedType",
    "sagemaker": "SageMakerConfig|install sagemaker|unknown keys|is not a valid|must be specified|missing",
    "num-processes-missing": "manually pass in `--num_processes`|required positional argument: 'num_processes'",
    "num-processes-type": "Unsupported nproc_per_node|unsupported operand type|not supported between",
    "num-machines-type": "not supported between|unsupported operand",
    "machine-rank-type": "invalid literal for int|must be a string, a bytes-like object or a real number",
    "mixed-precision-type": "has no attribute 'lower'",
    "mixed-precision": "Unknown mixed_precision mode",
    "section-type": "has no attribute 'keys'|indices must be integers|is not iterable",
    "gpu-ids-type": "has no attribute 'split'",
    "gpu-ids-count": "Less than two GPU ids",
    "main-process-missing": "need to specify the main process|PathLike object, not NoneType",
    "main-process-port-type": "cannot be interpreted as an integer|an integer is required|port must be",
    "use-cpu-type": "invalid truth value|has no attribute 'use_cpu'",
    "parallelism-type": "'>' not supported between",
    "flag-type": "SystemExit: 2",
    "flag-choice": "SystemExit: 2",
    "flags-exclusive": "You can only use one of",
    "multi-gpu-processes": "at least 2 processes",
    "fsdp-ram-sync": "fsdp_cpu_ram_efficient_loading",
    "dynamo-mode-type": "expected str",
    "main-process-ip-type": "expected str",
    "dynamo-backend": "Unknown dynamo backend|has no attribute 'upper'",
    "ds-conflict-fields": "the following accelerate config variables will be ignored",
    "ds-zero-missing": "Please specify the ZeRO optimization config",
    "ds-scale-power-type": "unsupported operand",
    "ds-section-type": "has no attribute 'get'|must be a mapping",
    "ds-precision-conflict": "arg cannot be set to",
    "zero-stage-type": "invalid literal for int",
    "zero3-init-flag-type": "invalid truth value",
    "gas-not-int": "invalid literal for int",
    "fp16-and-bf16": "At most one of fp16 and bf16",
    "auto-find-batch-size-zero3": "auto_find_batch_size",
    "trainer-mismatch": "mismatch TrainingArguments values",
    "auto-unfilled": "not found in kwargs",
    "batch-type": "TypeError",
    "offload-optimizer-null": "has no attribute 'get'",
    "ds-batch-auto": "TypeError",
    "ds-batch-type": "TypeError",
    "ds-batch-mismatch": "Check batch related parameters",
    "ds-batch-missing": "needs to be provided",
    "ds-batch-zero": "has to be greater than 0|division|modulo",
    "ds-removed-key": "has been removed",
    "ds-fp16-and-bf16": "cannot be simultaneously enabled",
    "ds-allreduce-sum": "is not supported with ZeRO stage 3",
}
"""Kind of failure -> what the library says. A kind that is missing here fails the test."""


def play(folder: Path, number: int = COUNT) -> tuple[list[Case], list[Any]]:
    """Launches, and what the real libraries made of them."""
    chosen = cases(number)
    (folder / "cases.json").write_text(json.dumps(chosen))
    environment = {
        **{name: os.environ[name] for name in ("PATH", "HOME", "LANG", "VIRTUAL_ENV") if name in os.environ},
        "DS_ACCELERATOR": "cpu",
        "HF_HOME": str(folder / "hf"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(folder),
    }
    command = [warm.python(), str(Path(__file__).with_name("worker.py")), "cases.json", "results.json"]
    with (folder / "log").open("w") as log:
        done = subprocess.run(command, cwd=folder, env=environment, stdout=log, stderr=log, check=False, timeout=3600)
    assert done.returncode == 0, (folder / "log").read_text()[-3000:]
    return chosen, json.loads((folder / "results.json").read_text())


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Case, Any]]:
    number = int(os.environ["ZEROCFG_PARITY"]) // 5 if "ZEROCFG_PARITY" in os.environ else COUNT
    return list(zip(*play(tmp_path_factory.mktemp("parity"), number), strict=True))


def test_parity(played: list[tuple[Case, Any]], count: Callable[[str, int], None]) -> None:
    wrong: list[str] = []
    ends: Counter[str] = Counter()
    compared = 0
    for index, (case, real) in enumerate(played):
        predicted = predicted_of(case)
        compared += 1
        ends[ending(predicted.failures, real)] += 1
        problems = differs(predicted, case, real)
        if problems:
            wrong.append(f"case {index}: {json.dumps(case)}\n  " + "\n  ".join(problems))
    count("triples of configs compared with the real libraries", compared)
    for end, number in ends.items():
        count(f"of the triples: {end}", number)
    assert compared == len(played) > 0
    assert not wrong, f"{len(wrong)} of {compared} differ\n" + "\n".join(wrong[:40])


def test_the_record_is_what_the_libraries_do(played: list[tuple[Case, Any]]) -> None:
    from tests.parity import record

    if "ZEROCFG_PARITY" not in os.environ:  # else other cases were played
        assert record.differences(record.TRIPLES, record.triples(*zip(*played, strict=True))) == []


def predicted_of(case: Case) -> Effective:
    predicted = resolve_settings(run_of(case))
    if case["consumer"] is None:  # only the launcher was played
        at_launch = tuple(failure for failure in predicted.failures if failure.phase == "launch")
        predicted = replace(predicted, failures=at_launch)
    return predicted


def differs(predicted: Effective, case: Case, real: Any) -> list[str]:
    problems = [*failures_differ(predicted, real), *environment_differs(predicted, real)]
    return problems or settings_differ(predicted, case["consumer"], real)


def run_of(case: Case) -> Run:
    by_launcher = case["yaml"] is not None
    flags: dict[str, Setting] = {}
    words = case["flags"]
    for place, word in enumerate(words):
        if word.startswith("--"):
            follows = words[place + 1] if place + 1 < len(words) else "--"
            value = True if follows.startswith("--") else follows
            flags[word[2:].replace("-", "_")] = Setting(value, Origin("flag", word))
    arguments = {"output_dir": "out", "save_strategy": "no", **case["arguments"]}
    if case["route"] == "trainer":
        arguments["deepspeed"] = "ds.json"
    if case["consumer"] != "transformers":
        arguments = {}
    return Run(
        "case",
        consumer=case["consumer"],
        reader_evidence=ReaderEvidence("command"),
        deepspeed_route=case["route"],
        model=ModelSummary("tiny", hidden_size=16),
        accelerate=source("acc.yaml", "accelerate", case["yaml"], "yaml") if by_launcher else None,
        launch=None if by_launcher else LaunchLine("python", (), None, (), (), {}, Span(0, 0)),
        deepspeed=source("ds.json", "deepspeed", case["json"], "json") if case["json"] is not None else None,
        flags=flags,
        arguments={name: Setting(value, Origin("flag", name)) for name, value in arguments.items()},
    )


def source(name: str, kind: Any, text: str, form: Any) -> SourceFile:
    read = SourceText(name, text)
    return SourceFile(name, kind, read, load_as(read, form))


def ending(failures: Sequence[Failure], real: Any) -> str:
    return failures[0].kind if failures else ("runs" if real["error"] is None else "single key")


def failures_differ(predicted: Effective, real: Any) -> list[str]:
    """The first predicted failure is the real error: same phase, same words; or there is neither."""
    error = real.get("error")
    if real.get("phase") == "parse" and error and re.search("ValidationError", error) and not earlier(predicted):
        return []  # a single key's type or range: the catalog's matter
    first = predicted.failures[0] if predicted.failures else None
    if first is None:
        return [] if error is None else [f"not predicted ({real['phase']}): {error[:300]}"]
    if error is None:
        return [f"predicted {first.kind} ({first.phase}), but it runs ({real['phase']}): {first.message[:200]}"]
    wrong = [] if first.phase == real["phase"] else [f"{first.kind}: phase {first.phase}, really {real['phase']}"]
    if not re.search(SAYS[first.kind], error):
        wrong.append(f"predicted {first.kind}: {first.message[:200]}; really: {error[:300]}")
    if first.kind == "trainer-mismatch":
        lines = [line for line in first.message.splitlines() if line.startswith("- ds")]
        if lines != [line for line in error.splitlines() if line.startswith("- ds")]:
            wrong.append(f"other lines: {lines} really {error}")
    return wrong


def earlier(predicted: Effective) -> bool:
    return any(failure.phase != "parse" for failure in predicted.failures)


def environment_differs(predicted: Effective, real: Any) -> list[str]:
    exported = real.get("environment")
    if exported is None:
        return []
    found = {name: setting.value for name, setting in predicted.environment.items() if name in exported or own(name)}
    wrong = [
        f"{name}: predicted {found.get(name)!r}, exported {exported.get(name)!r}"
        for name in sorted(set(found) | set(exported))
        if found.get(name) != exported.get(name)
    ]
    world = predicted.settings["num_processes"].value
    return wrong + ([] if world == real["world"] else [f"world: predicted {world}, really {real['world']}"])


def own(name: str) -> bool:
    return name.startswith(("ACCELERATE_", "FSDP_", "MEGATRON_LM_", "PARALLELISM_CONFIG_", "CUDA_VIS", "MASTER_"))


def settings_differ(predicted: Effective, consumer: str, real: Any) -> list[str]:
    if "config" not in real:
        return []
    final = dict(leaves(real["config"], ""))
    wrong = [
        f"{name}: predicted {show(predicted, name)}, in the config {value!r}"
        for name, value in final.items()
        if not written(predicted, consumer, name, value)
    ]
    for name, setting in predicted.settings.items():
        at_the_end = setting.origin.note.startswith("deepspeed") or "arithmetic" in setting.origin.note
        if "." in name and not at_the_end and name not in final:
            wrong.append(f"{name}: predicted {setting.value!r}, not in the config")
    return wrong + parsed_differs(predicted, real.get("parsed", {}))


def leaves(data: Any, prefix: str) -> Any:
    for name, value in data.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def show(predicted: Effective, name: str) -> str:
    setting = predicted.get(name)
    return "nothing" if setting is None else f"{setting.value!r} ({setting.origin.kind} {setting.origin.note})"


UNKNOWABLE = ("scheduler.params.total_num_steps", "scheduler.params.warmup_num_steps")
"""The steps of an epoch depend on the data set."""
IN_SCRIPT = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "optimizer.params",
    "scheduler.params",
)


def written(predicted: Effective, consumer: str, name: str, value: Any) -> bool:
    """Whether the config's own value is the predicted one, before DeepSpeed converts texts and drops "auto"."""
    setting = predicted.get(name)
    if setting is None:
        return False
    if setting.value is UNKNOWN:
        return name in UNKNOWABLE or (consumer == "accelerate" and name.startswith(IN_SCRIPT))
    if value is None and "arithmetic" in setting.origin.note:
        return True
    before = [setting.value]
    if setting.overridden and (setting.origin == setting.overridden[0].origin or "deepspeed" in setting.origin.note):
        before.append(setting.overridden[0].value)
    return any(same(known, value) for known in before)


def parsed_differs(predicted: Effective, parsed: dict[str, Any]) -> list[str]:
    """What the engine's own parser made of the config."""
    wrong = []
    for name, value in parsed.items():
        spelled = (
            name if name in predicted.settings else name.replace("zero_optimization.", "zero_optimization.stage3_")
        )
        if spelled not in predicted.settings or isinstance(value, dict) or value is None:
            continue
        known = predicted.settings[spelled].value
        if known is not UNKNOWN and not same(known, value):
            wrong.append(f"{name}: predicted {show(predicted, spelled)}, parsed {value!r}")
    return wrong


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float) and math.isinf(one):
        return math.isinf(other)
    return bool(one == other)


def test_defaults_are_the_engines() -> None:
    """An absent key has what the engine uses for an empty section."""
    code = (
        "import json;from deepspeed.runtime.zero.config import DeepSpeedZeroConfig as Z;"
        "print('\\n'+json.dumps(Z().model_dump(mode='json')))"
    )
    environment = {**os.environ, "DS_ACCELERATOR": "cpu"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    real = json.loads(done.stdout.strip().splitlines()[-1])
    for name in engine.ABSENT:
        default = engine.unset(name)
        assert default is not None, name
        section, _, key = name.partition(".")
        if section == "zero_optimization" and "." not in key:
            known = real[key] if key in real else real[key.removeprefix("stage3_")]
            assert default.value == known, name
