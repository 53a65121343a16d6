"""Plain data parallelism to FSDP 2 or to ZeRO."""

from __future__ import annotations

from zerocfg.convert.conversion import Conversion, Match, Row, place, refused, said
from zerocfg.convert.deepspeed_section import SECTION
from zerocfg.convert.fsdp1 import FULL, POLICY, RESHARD, STATE_DICT, VERSION
from zerocfg.convert.fsdp1 import SECTION as FSDP
from zerocfg.convert.outcome import conversion, dynamo
from zerocfg.convert.precision import DDP_TO_FSDP2, DDP_TO_ZERO, precision
from zerocfg.convert.yaml_edits import with_section
from zerocfg.migrate.steps import Put, changed
from zerocfg.rules.effects import under_trainer
from zerocfg.run.discover import Files
from zerocfg.run.model import Run

_KIND = ("distributed_type",)
_WHOLE = "(each card holds the whole model)"
_SHARDS = "parameters, gradients and optimizer state are sharded: less memory, more communication"
_PARTLY = "gradients and optimizer state are sharded, parameters stay whole"


def ddp_to_fsdp2(run: Run, files: Files) -> Conversion:
    """The run under FSDP 2, sharded as far as it goes. Raises ConversionError."""
    values: dict[str, object] = {VERSION: 2, RESHARD: True, POLICY: "TRANSFORMER_BASED_WRAP", STATE_DICT: FULL}
    rows = [
        Row(_WHOLE, said((FSDP, RESHARD), True), "nearly", _SHARDS),
        Row("(checkpoints hold whole weights)", said((FSDP, STATE_DICT), FULL), "exactly", "the default leaves shards"),
        Row("(one model)", said((FSDP, POLICY), values[POLICY]), "exactly", "FSDP gathers layer by layer"),
    ]
    rows += precision(run, DDP_TO_FSDP2)
    return _converted(run, files, "FSDP", FSDP, values, rows)


def ddp_to_zero(run: Run, files: Files, stage: int) -> Conversion:
    """The run under ZeRO. Raises ConversionError."""
    values: dict[str, object] = {"zero_stage": stage}
    rows = [Row(_WHOLE, said((SECTION, "zero_stage"), stage), "nearly", _SHARDS if stage == 3 else _PARTLY)]
    if stage == 3:
        values["zero3_save_16bit_model"] = True
        saved = said((SECTION, "zero3_save_16bit_model"), True)
        rows.append(Row("(checkpoints hold whole weights)", saved, "nearly", "in 16 bit, where that is the precision"))
    if not under_trainer(run):
        why = "DeepSpeed clips in its own step, and takes no other norm from a script; a Trainer says max_grad_norm"
        rows.append(Row("(gradients are clipped where the script does)", "(gradient_clipping: 1.0)", "nearly", why))
    rows += precision(run, DDP_TO_ZERO)
    rows += dynamo(run, "not at all", "the DeepSpeed launcher does not export it")
    return _converted(run, files, "DEEPSPEED", SECTION, values, rows)


def _converted(
    run: Run, files: Files, kind: str, section: str, values: dict[str, object], rows: list[Row]
) -> Conversion:
    file = run.accelerate
    assert file is not None
    if run.effective.value("num_processes") == 1:
        raise refused(file, ("num_processes",), "one process has nobody to share with")
    exactly: Match = "exactly"
    old = file.data()["distributed_type"]
    first = Row(said(_KIND, old), said(_KIND, kind), exactly, "", place(file, _KIND), frozenset({"engine"}))
    try:
        text = changed(file, file.source.text, [Put(_KIND, kind)])
        text = with_section(file, text, section, values)
    except ValueError as error:
        raise refused(file, _KIND, f"it cannot be edited here: {error}") from None
    return conversion(run, files, text, [first, *rows])
