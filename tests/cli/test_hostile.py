"""Inputs that nobody writes by hand: each command answers, and nothing breaks inside."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome
from zerocfg.budgets import FILE_BYTES
from zerocfg.catalog.values import whole_number
from zerocfg.convert.targets import TARGETS

Call = Callable[..., Outcome]
DIGITS = "9" * 5000
FILES = {
    "a.json": f'{{"train_micro_batch_size_per_gpu": {DIGITS}, "zero_optimization": {{"stage": 2}}}}\n',
    "b.yaml": "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\n"
    f"num_processes: {DIGITS}\ndeepspeed_config:\n  zero_stage: 2\n  gradient_accumulation_steps: 0x{'f' * 4000}\n",
    "c.json": '{"zero_optimization": {"stage": "²"}, "a\\ud800b": "\\udfff", "gradient_clipping": 1e400}\n',
    "d.yaml": "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\n"
    "fsdp_config:\n  fsdp_sharding_strategy: '²'\n  fsdp_auto_wrap_policy: NO_WRAP\n",
    "r.yaml": f'output_dir: "x\\ud800"\nper_device_train_batch_size: {DIGITS}\nlearning_rate: "²"\nmax_steps: "+"\n',
    "l.sh": f"accelerate launch --num_processes {DIGITS} --gradient_accumulation_steps ² --config_file b.yaml t.py "
    f"--per_device_train_batch_size {DIGITS} --gradient_accumulation_steps {DIGITS} --deepspeed c.json\n"
    "accelerate launch --config_file d.yaml --num_machines ² t.py r.yaml\n",
}
COMMANDS = (
    "lint",
    "lint --output-format json",
    "lint --output-format sarif",
    "lint --fix --unsafe-fixes --diff",
    "lint --show-runs --output-format json",
    *(f"explain --run {name}" for name in FILES),
    "migrate --to deepspeed==0.19.8,transformers==5.23.0 .",
    "diff --releases deepspeed==0.16.9 deepspeed==0.19.8 .",
    "diff a.json c.json",
    *(f"convert {name} --to {target}" for name in ("b.yaml", "d.yaml", "r.yaml") for target in TARGETS),
    "init --print",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_numbers_of_thousands_of_digits_and_odd_digits(command: str, zerocfg: Call, tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    done = zerocfg(*command.split())
    assert done.code in (0, 1, 2)
    assert "internal error" not in done.err


def test_whole_numbers() -> None:
    assert [whole_number(text) for text in ("12", " 7 ", "0", "9" * 40)] == [12, 7, 0, int("9" * 40)]
    assert [whole_number(text) for text in ("²", "", "-1", "1_000", "9" * 41, None, 3)] == [None] * 7


def test_standard_input_has_a_limit(zerocfg: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(io.RawIOBase):
        """A pipe that never ends, and that counts what is taken."""

        taken = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
            buffer[:] = b"x" * len(buffer)
            self.taken += len(buffer)
            return len(buffer)

    endless = Endless()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(endless)))
    done = zerocfg("lint", "-")
    assert done.code == 2
    assert done.err.endswith("Error: standard input is larger than 10 MiB; not read\n")
    assert endless.taken < FILE_BYTES + (1 << 20)
