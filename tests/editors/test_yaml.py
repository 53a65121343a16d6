"""accelerate configs, specs and recipes in an editor: the YAML server of Red Hat with the schemas for editors."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from tests.editors.servers import Editor
from zerocfg.cli.commands.schema import command

NAME = "accelerate_config.yaml"


@pytest.fixture(scope="module")
def recipe() -> str:
    """The line that makes a file with any name a TRL recipe."""
    return CliRunner().invoke(command, ["trl", "--line"]).output


def test_a_key_is_completed_with_its_default_and_documentation(yaml_editor: Editor) -> None:
    offered = yaml_editor.completion(NAME, "distributed_type: DEEPSPEED\ndeepspeed_config:\n  |")
    item = offered["zero_stage"]
    assert item.text_edit is not None and item.text_edit.new_text == "zero_stage: ${1:2}"
    assert "Default **2**" in str(item.documentation) and "ACCELERATE_DEEPSPEED_ZERO_STAGE" in str(item.documentation)
    top = yaml_editor.completion(NAME, "machine_rank: 0\n|")
    assert {"distributed_type", "num_processes", "fsdp_config"} <= set(top) and "rdzv_endpoint" not in top
    section = top["fsdp_config"].text_edit
    assert section is not None and section.new_text.startswith("fsdp_config:\n")
    required = top["distributed_type"].text_edit
    assert required is not None and required.new_text.startswith("distributed_type: ")


def test_values_are_completed(yaml_editor: Editor) -> None:
    kinds = set(yaml_editor.completion(NAME, "distributed_type: |\n"))
    assert {"DEEPSPEED", "FSDP", "MULTI_GPU", '"NO"'} <= kinds and "false" not in kinds
    assert set(yaml_editor.completion(NAME, "deepspeed_config:\n  zero_stage: |\n")) == {"0", "1", "2", "3"}
    assert {"fp16", "bf16", "fp8"} <= set(yaml_editor.completion(NAME, "mixed_precision: |\n"))


def test_hover(yaml_editor: Editor) -> None:
    clipping = yaml_editor.hover(NAME, "distributed_type: DEEPSPEED\ndeepspeed_config:\n  gradient_clip|ping: auto\n")
    assert 'Unit: **norm**, default **"auto"**.' in clipping
    assert '`"auto"`: accelerate fills in `1.0`; transformers and TRL fill in `max_grad_norm`.' in clipping
    assert "Refused beside `deepspeed_config_file`." in clipping and "||" not in clipping
    wrap = yaml_editor.hover(NAME, "distributed_type: FSDP\nfsdp_config:\n  fsdp_use_orig|_params: true\n")
    assert "Only with FSDP version 1." in wrap and "`--fsdp_use_orig_params`" in wrap
    precision = yaml_editor.hover(NAME, "distributed_type: FSDP\nmixed_prec|ision: bf16\n")
    assert "Allowed Values" in precision and "* `fp8`" in precision
    assert "FSDP" in yaml_editor.hover(NAME, "distributed_type: FSDP\nfsdp_con|fig:\n  fsdp_version: 2\n")


def test_bad_values_are_underlined_with_words_that_help(yaml_editor: Editor) -> None:
    text = """distributed_type: DEEPSPED
num_processes: eight
deepspeed_config:
  zero_stage: 7
  gradient_clipping: much
  zero_stagge: 3
rdzv_endpoint: here
fp16: true
foo: 1
"""
    told = {problem.range.start.line + 1: problem.message for problem in yaml_editor.diagnostics(NAME, text)}
    assert set(told) == {1, 2, 4, 5, 6, 7, 8, 9}
    assert told[1].startswith('Expected "NO", "MULTI_CPU"') and '"DEEPSPEED"' in told[1]
    assert told[2] == "Expected a whole number of processes (at least -1) or null."
    assert told[4] == "Expected 0, 1, 2, 3 or null."
    assert told[5] == 'Expected a number, "auto" or null.'
    assert told[6] == "Property zero_stagge is not allowed."
    assert told[7] == "Removed: never was a key; the endpoint is main_process_ip and main_process_port."
    assert told[8] == "Deprecated: converted to mixed_precision: fp16; write that instead."
    assert told[9] == "Property foo is not allowed."


def test_what_the_library_converts_is_not_underlined(yaml_editor: Editor) -> None:
    """PyYAML reads YAML 1.1, the server 1.2: words and numbers that only one of them takes for such are fine."""
    text = """compute_environment: LOCAL_MACHINE
distributed_type: no
mixed_precision: BF16
num_processes: "8"
num_machines: 1_000
use_cpu: off
debug: yes
main_process_ip: null
gpu_ids: 0,1
deepspeed_config:
  zero_stage: "3"
  gradient_accumulation_steps: auto
  zero3_init_flag: "True"
  num_processes: 4
fsdp_config:
  version: 2
"""
    assert yaml_editor.diagnostics(NAME, text) == []


def test_a_file_for_sagemaker_has_keys_of_its_own(yaml_editor: Editor) -> None:
    text = "compute_environment: AMAZON_SAGEMAKER\ndistributed_type: NO\nec2_instance_type: ml.p4d\niam_role_name: r\n"
    assert yaml_editor.diagnostics(NAME, text) == []
    (wrong,) = yaml_editor.diagnostics(NAME, text + "machine_rank: 0\n")
    assert wrong.message == "Property machine_rank is not allowed."
    assert "Role that the job takes." in yaml_editor.hover(NAME, text.replace("iam_role", "iam_|role"))
    assert "py_version" in yaml_editor.completion(NAME, text + "|")


def test_a_spec(yaml_editor: Editor) -> None:
    start = "version: 1\nruns:\n  sft:\n"
    assert {"consumer", "hardware", "goals"} <= set(yaml_editor.completion("zerocfg.yaml", start + "    |"))
    consumers = yaml_editor.completion("zerocfg.yaml", start + "    consumer: |\n")
    assert set(consumers) == {"deepspeed", "accelerate", "transformers", "trl"}
    whole = start + "    consumer: trl\n    script: a.py\n    sequence_len|gth: 2048\n"
    assert "Unit: **tokens**" in yaml_editor.hover("zerocfg.yaml", whole)
    assert yaml_editor.diagnostics("zerocfg.yaml", whole.replace("|", "").replace("2048", "2_048")) == []
    told = [
        each.message
        for each in yaml_editor.diagnostics("zerocfg.yaml", start + "    consumer: tlr\n    script: a.py\n")
    ]
    assert told == ['Expected "deepspeed", "accelerate", "transformers" or "trl".']


def test_the_line_binds_a_recipe_of_any_name(yaml_editor: Editor, recipe: str) -> None:
    told = yaml_editor.hover("recipes/sft.yaml", recipe + "learning_|rate: 3e-5\n")
    assert "Peak learning rate." in told and "**2e-05** in SFTConfig" in told
    assert "GRPOConfig" in yaml_editor.hover("sft.yaml", recipe + "num_gener|ations: 8\n")
    own = recipe + "my_own_key: 1\noverwrite_output_dir: true\nlearning_rate: 1.0e-5\nbf16: yes\n"
    assert yaml_editor.diagnostics("sft.yaml", own) == []  # a program's own keys, and those of older releases
    (wrong,) = yaml_editor.diagnostics("sft.yaml", recipe + "num_train_epochs: three\n")
    assert wrong.message == "Expected a number of epochs."
    assert yaml_editor.diagnostics("sft.yaml", "num_train_epochs: three\n") == []


def test_another_yaml_file_is_left_alone(yaml_editor: Editor) -> None:
    assert yaml_editor.diagnostics("recipe.yaml", "distributed_type: 5\n") == []
    assert yaml_editor.diagnostics("default_config.yaml", "distributed_type: 5\n") == []
    assert yaml_editor.diagnostics("huggingface/accelerate/default_config.yaml", "distributed_type: 5\n") != []
