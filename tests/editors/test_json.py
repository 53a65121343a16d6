"""A DeepSpeed config in an editor: the JSON server of VS Code with the schema for editors."""

from __future__ import annotations

from lsprotocol.types import DiagnosticSeverity

from tests.editors.servers import Editor
from tests.models.editor_schemas import FOLDER

NAME = "ds_config_zero3.json"


def test_a_key_is_completed_with_its_default_and_documentation(json_editor: Editor) -> None:
    offered = json_editor.completion(NAME, '{"zero_optimization": {"|"}}')
    assert len(offered) > 30
    item = offered["reduce_bucket_size"]
    assert item.text_edit is not None and "500000000" in item.text_edit.new_text
    assert "Unit: **elements**, default **500,000,000**" in str(item.documentation)


def test_removed_and_deprecated_keys_are_not_offered(json_editor: Editor) -> None:
    offered = json_editor.completion(NAME, '{"|"}')
    assert "zero_optimization" in offered and "bf16" in offered
    assert "amp" not in offered and "eigenvalue" not in offered
    assert not {"cpu_offload", "mics_shard_size"} & set(json_editor.completion(NAME, '{"zero_optimization": {"|"}}'))


def test_a_section_is_offered_with_its_braces(json_editor: Editor) -> None:
    inside = '{"zero_optimization": {"|"}}'
    for key, outer in (("bf16", '{"|"}'), ("offload_param", inside), ("params", '{"optimizer": {"|"}}')):
        item = json_editor.completion(NAME, outer)[key]
        assert item.text_edit is not None and item.text_edit.new_text.replace("\n", "").startswith(f'"{key}": {{')


def test_values_are_completed(json_editor: Editor) -> None:
    """What belongs there, and not what is taken besides: no text, no true for a number."""
    assert set(json_editor.completion(NAME, '{"zero_optimization": {"stage": |}}')) == {"0", "1", "2", "3", '"auto"'}
    devices = json_editor.completion(NAME, '{"zero_optimization": {"offload_param": {"device": |}}}')
    assert set(devices) == {'"none"', '"cpu"', '"nvme"', '"auto"'}
    assert set(json_editor.completion(NAME, '{"zero_optimization": {"reduce_bucket_size": |}}')) == {
        "500000000",
        '"auto"',
    }
    assert {"true", "false"} <= set(json_editor.completion(NAME, '{"zero_optimization": {"overlap_comm": |}}'))


def test_the_keys_of_an_optimizer_follow_its_type(json_editor: Editor) -> None:
    adam = json_editor.completion(NAME, '{"optimizer": {"type": "AdamW", "params": {"|"}}}')
    assert "betas" in adam and "torch_adam" in adam
    lion = json_editor.completion(NAME, '{"optimizer": {"type": "Lion", "params": {"|"}}}')
    assert "betas" in lion and "torch_adam" not in lion


def test_hover_tells_unit_default_and_who_fills_auto(json_editor: Editor) -> None:
    told = json_editor.hover(NAME, '{"zero_optimization": {"reduce_bucket_|size": "auto"}}')
    assert "Unit: **elements**, default **500,000,000**, more than 0." in told
    assert (
        '`"auto"`: transformers, TRL and accelerate fill in `hidden_size**2`. Left unfilled, it counts as absent.'
        in told
    )
    assert "deepspeed/runtime/zero/config.py" in told
    assert "Since DeepSpeed 0.17.2." in json_editor.hover(NAME, '{"torch_auto|cast": {"enabled": true}}')
    learning_rate = json_editor.hover(NAME, '{"optimizer": {"type": "AdamW", "params": {"l|r": "auto"}}}')
    assert "`learning_rate`" in learning_rate and "Default **0.001**" in learning_rate
    offload = json_editor.hover(NAME, '{"zero_optimization": {"offload_pa|ram": {"device": "cpu"}}}')
    assert "Offload of parameters" in offload and "Stage 3 only" in offload
    assert "FusedLion" in json_editor.hover(NAME, '{"optimizer": {"type": "Lion", "par|ams": {}}}')


def test_bad_values_are_underlined_with_words_that_help(json_editor: Editor) -> None:
    text = """{
  "zero_optimization": {
    "stage": 5,
    "reduce_bucket_size": "many",
    "offload_param": {"device": "gpu"},
    "stage3_prefetch_bucket_size": -1,
    "cpu_offload": true
  },
  "amp": {"enabled": true},
  "bf16": {"enabled": "maybe"},
  "trian_batch_size": 8
}"""
    told = {problem.range.start.line + 1: problem for problem in json_editor.diagnostics(NAME, text)}
    assert set(told) == {3, 4, 5, 6, 7, 9, 10, 11}
    assert told[3].message == 'Value is not accepted. Valid values: 0, 1, 2, 3, "auto".'
    assert told[4].message == 'Expected a whole number of elements (more than 0) or "auto".'
    assert told[6].message == "Value is below the minimum of 0."
    assert told[7].message == "Deprecated: write offload_optimizer: {device: cpu}."
    assert told[9].message == "Removed: Apex amp was removed from DeepSpeed; use fp16, bf16 or torch_autocast."
    assert told[10].message == 'Expected true or false or "auto".'
    assert told[11].message == "Property trian_batch_size is not allowed."
    assert told[7].severity is DiagnosticSeverity.Warning


def test_what_the_library_converts_is_not_underlined(json_editor: Editor) -> None:
    text = """{
  "$schema": "SCHEMA",
  "_comment": "DeepSpeed ignores it",
  "train_batch_size": "auto",
  "bfloat16": {"enabled": "auto"},
  "fp16": {"enabled": 0, "loss_scale": "0"},
  "zero_optimization": {
    "stage": "3",
    "reduce_bucket_size": 5.0e8,
    "prefetch_bucket_size": 2e7,
    "allgather_bucket_size": "500_000_000",
    "overlap_comm": null,
    "contiguous_gradients": "true",
    "offload_param": null
  },
  "optimizer": {"type": "adamw", "params": {"lr": 1e-4, "betas": "auto"}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}}
}"""
    text = text.replace("SCHEMA", (FOLDER / "deepspeed.json").as_uri())
    assert json_editor.diagnostics(NAME, text) == []


def test_another_json_file_is_left_alone(json_editor: Editor) -> None:
    assert json_editor.diagnostics("package.json", '{"zero_optimization": 5}') == []
    assert "zero_optimization" not in json_editor.completion("package.json", '{"|"}')
