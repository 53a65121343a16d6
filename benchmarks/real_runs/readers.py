"""What the real libraries make of builds: each launch.sh run by bash with stand-ins for the launchers, the words parsed
by the launcher's own parser, the configs by accelerate's launcher and by DeepSpeed:

    python -m benchmarks.real_runs.readers KEPT [--count N]

KEPT is what `benchmarks.real_runs.run --keep` wrote. Takes every k-th build, so that all repositories have a say. Needs
the training libraries. Exit code 1 where one refuses a build, or reads another value than the lock has.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.real_files import oracle

LAUNCHERS = ("accelerate", "torchrun", "deepspeed")
STAND_IN = '#!/usr/bin/env bash\nprintf "%s\\0" "${0##*/}" "$@"\n'


def words_of(script: Path) -> list[str]:
    """The command that a launch.sh ends in, its words as bash makes them."""
    with tempfile.TemporaryDirectory() as folder:
        for name in LAUNCHERS:
            path = Path(folder, name)
            path.write_text(STAND_IN)
            path.chmod(0o755)
        set_where_started = {"MACHINE_RANK": "0", "MAIN_PROCESS_IP": "127.0.0.1", "HOSTFILE": "/dev/null"}
        environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", **set_where_started}
        done = subprocess.run(["bash", script], env=environment, capture_output=True, check=False)
    if done.returncode != 0:
        raise ValueError(done.stderr.decode(errors="replace").strip())
    return done.stdout.decode().split("\0")[:-1]


def complaints(build: Path) -> list[str]:
    """What the libraries refuse, and where they read another value than the lock has."""
    lock = json.loads((build / "zerocfg.lock").read_text())
    try:
        launcher, *words = words_of(build / "launch.sh")
        _parsed(launcher, words)
    except (Exception, SystemExit) as error:
        return [f"launch.sh: {type(error).__name__}: {error}"]
    found = []
    if (build / "accelerate.yaml").is_file():
        error = oracle.accelerate_error(build / "accelerate.yaml")
        found += [f"accelerate.yaml: {error}"] if error else []
    if (build / "ds_config.json").is_file():
        config, refused = oracle.deepspeed_config(build / "ds_config.json")
        found += [f"ds_config.json: {refused}"] if refused else _other_values(config, _written(build, lock["settings"]))
    return found


def _parsed(launcher: str, words: list[str]) -> argparse.Namespace:
    if launcher == "accelerate":
        from accelerate.commands.launch import launch_command_parser

        parser: argparse.ArgumentParser = launch_command_parser()
        return parser.parse_args(words[1:])  # behind `launch`
    if launcher == "torchrun":
        from torch.distributed.run import get_args_parser

        return get_args_parser().parse_args(words)
    from deepspeed.launcher.runner import parse_args

    found: argparse.Namespace = parse_args(args=words)
    return found


def _written(build: Path, settings: dict[str, Any]) -> dict[str, Any]:
    data = json.loads((build / "ds_config.json").read_text())
    zero = {f"zero_optimization.{name}" for name in data["zero_optimization"]}
    return {name: one for name, one in settings.items() if name in zero or name in data}


def _other_values(config: Any, settings: dict[str, Any]) -> list[str]:
    """DeepSpeed's own config against the settings of the lock, for what the file writes: a default that the lock tells
    is that of the release which the repository admits, not of the one here."""
    read = {
        "zero_optimization.stage": config.zero_config.stage,
        "zero_optimization.reduce_bucket_size": config.zero_config.reduce_bucket_size,
        "zero_optimization.overlap_comm": config.zero_config.overlap_comm,
        "train_micro_batch_size_per_gpu": config.train_micro_batch_size_per_gpu,
        "gradient_accumulation_steps": config.gradient_accumulation_steps,
        "gradient_clipping": config.gradient_clipping,
    }
    told = {name: settings[name]["value"] for name in read if name in settings}
    return [f"{name}: the lock has {told[name]}, DeepSpeed {read[name]}" for name in told if told[name] != read[name]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kept", type=Path)
    parser.add_argument("--count", type=int, default=60)
    given = parser.parse_args()
    builds = sorted(path.parent for path in given.kept.rglob("zerocfg.lock"))
    chosen = builds[:: max(1, len(builds) // given.count)]
    launchers: Counter[str] = Counter()
    wrong = 0
    for build in chosen:
        launchers[json.loads((build / "zerocfg.lock").read_text())["launcher"]] += 1
        for line in complaints(build):
            wrong += 1
            print(f"{build.relative_to(given.kept)}: {line}")
    told = ", ".join(f"{count} for {name}" for name, count in launchers.most_common())
    print(f"{len(chosen)} of {len(builds)} builds read ({told}): {wrong} complaints")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
