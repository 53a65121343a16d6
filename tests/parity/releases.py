"""``python -m tests.parity.releases``: configs judged at older releases, held against those releases themselves.

Each release is installed in a folder of its own (tools/facts) and reads the corpus, where there is one, the examples of
rules and generated configs; zerocfg judges the same configs with that release pinned. Compared are refusals and, for
accelerate, the exported variables. Exit code 1 when they disagree.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.parity import generated
from tests.parity.test_generated import (
    ACCELERATE,
    BY_INITIALIZE,
    DEEPSPEED,
    LIMITS,
    errors,
    launch_differs,
    seeds,
)
from tests.parity.verdicts import ABOUT_THE_MACHINE, Real, accelerate_run, claims, deepspeed_run, lint
from tools.facts.environment import CACHE, ROOT, Release, install
from tools.facts.environment import releases as known
from zerocfg.run.effective import settled

RELEASES = {
    "deepspeed": ("0.10.3", "0.12.6", "0.14.5", "0.15.4", "0.16.3", "0.16.9", "0.17.6", "0.18.9", "0.19.5"),
    "accelerate": ("0.24.1", "0.27.2", "0.30.1", "0.34.2", "1.0.1", "1.3.0", "1.6.0", "1.10.1", "1.12.0"),
}
ALSO_LIMITS = {
    "older accelerate: something else than a mapping in the place of a section that is not used": re.compile(
        "refused, and not predicted: TypeError: (string|list) indices must be integers|object is not iterable$"
    ),
    "DeepSpeed before 0.14.1 calls a type of communication bfp16, and refuses bf16": re.compile(
        r"Invalid communication_data_type.*'bfp16'"
    ),
    "accelerate before 0.34: `mixed_precision: no` without quotes is told where one launcher gets past it": re.compile(
        "launched, but predicted mixed-precision-type"
    ),
}
"""Further limits of what zerocfg tells at older releases: the limit in words, and what the disagreement looks like."""
Config = tuple[str, int]


def configs(library: str, examples: int) -> list[Config]:
    """Texts and world sizes: files that people wrote (and the examples of rules), then generated ones."""
    engine = library == "deepspeed"
    name, strategy = ("ds.json", DEEPSPEED) if engine else ("accelerate.yaml", ACCELERATE)
    written = generated.json_text if engine else generated.yaml_text
    found: list[Config] = [(written(tree), 2) for tree in seeds(name)]

    @settings(
        max_examples=max(1, examples),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(tree=strategy, world=st.sampled_from([1, 2, 8]))
    def collect(tree: dict[str, object], world: int) -> None:
        found.append((written(tree), world if engine else 2))

    if examples:
        collect()
    return list(dict.fromkeys(found))


def verdicts(release: Release, given: list[Config]) -> list[Any]:
    """What a release says of each config: DeepSpeed how it refuses it, or None; accelerate what its launcher does."""
    folder = CACHE / "installed" / release.name
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=CACHE) as new:
            install(release, Path(new, "whole"))
            folder.parent.mkdir(exist_ok=True)
            Path(new, "whole").rename(folder)
    asked = given if release.library == "deepspeed" else [text for text, _ in given]
    done = subprocess.run(
        [sys.executable, "-m", f"tools.facts.parse_{release.library}"],
        input="".join(json.dumps(one) + "\n" for one in asked),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )
    said = [json.loads(line[8:]) for line in done.stdout.splitlines() if line.startswith("VERDICT ")]
    if len(said) != len(given):
        raise RuntimeError(f"{release.name} judged {len(said)} of {len(given)}: {done.stderr[-800:]}")
    return said


def deepspeed_differs(version: str, config: Config, error: str | None) -> Iterator[str]:
    """In which way zerocfg, with a release pinned, says something else than the release."""
    run = settled(replace(deepspeed_run(*config), versions={"deepspeed": f"=={version}"}))
    diagnostics = lint(run)
    sure, maybe = claims(diagnostics, "read", "parse")
    sure = [one for one in sure if one.code not in BY_INITIALIZE]
    newer = any(one.code == "ZC865" and one.severity.value == "error" for one in diagnostics)
    if error is None:
        yield from [f"accepted, but {sure[0].code}: {sure[0].message}"] if sure else []
    elif not (sure or maybe or newer or ABOUT_THE_MACHINE in error):
        yield f"refused, and no error says so: {error[:200]!r}; {errors(diagnostics)[:3]}"


def accelerate_differs(version: str, config: Config, real: Real) -> Iterator[str]:
    """The same for a launch: refusals, and the variables and processes of what is launched."""
    if not real.here:
        run = settled(replace(accelerate_run(config[0]), versions={"accelerate": f"=={version}"}))
        yield from launch_differs(run, lint(run), real)


def judged(release: Release, given: list[Config]) -> tuple[int, list[tuple[str, Config]]]:
    """How many configs the release refuses, and where zerocfg says something else."""
    refused, wrong = 0, []
    for config, said in zip(given, verdicts(release, given), strict=True):
        if release.library == "deepspeed":
            refused += said is not None
            problems = deepspeed_differs(release.version, config, said)
        else:
            refused += said["error"] is not None
            problems = accelerate_differs(release.version, config, Real(**said))
        limits = [*LIMITS.values(), *ALSO_LIMITS.values()]
        wrong += [(one, config) for one in problems if not any(limit.search(one) for limit in limits)]
    return refused, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("releases", nargs="*", help="of --library; `all` for every known one")
    parser.add_argument("--library", choices=RELEASES, action="append")
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--show", type=int, default=5, help="disagreements to show for each release")
    options = parser.parse_args()
    pairs = failed = 0
    for library in options.library or RELEASES:
        given = configs(library, options.examples)
        wanted = options.releases or RELEASES[library]
        for release in known():
            if release.library != library or not ("all" in wanted or release.version in wanted):
                continue
            refused, wrong = judged(release, given)
            pairs += len(given)
            failed += len({config for _, config in wrong})
            counts = f"{len(given)} configs, {refused} refused, {len({config for _, config in wrong})} disagreements"
            print(f"{library} {release.version}: {counts}", flush=True)
            for problem, config in wrong[: options.show]:
                print(f"  {problem}\n    {config[0][:600]}")
    print(f"{pairs} pairs of a config and a release, {failed} disagreements")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
